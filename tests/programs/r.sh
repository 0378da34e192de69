# R: vectors, data frames, models, matrices, strings, closures, and its own collector.
# packages: r-base-core
# also: harden
# version: R --version
# when: long
. "$(dirname "$0")/on.sh"

cat > script.R <<'R'
n <- 20000
d <- data.frame(id = 1:n, kind = (1:n * 31) %% 17, x = ((1:n * 7919) %% 5003) / 7)
d$y <- 3 * d$x - d$kind + sin(1:n)
print(signif(coef(lm(y ~ x + kind, d)), 5))
print(head(aggregate(y ~ kind, d, mean), 3), digits = 5)
s <- paste0("w", d$id, "-", d$kind)
print(c(length(unique(sub("-.*", "", s))), sum(nchar(gsub("[0-9]", "", s)))))
m <- outer(1:150, 1:150, function(i, j) 1 / (i + j)) + diag(150)
print(signif(sum(solve(m) %*% m), 6))
l <- lapply(1:5000, function(i) list(i, as.character(i), function() i))
print(sum(vapply(l, function(e) e[[3]](), 1)))
f <- function(n) if (n < 2) n else f(n - 1) + f(n - 2)
print(f(15))
for (i in 1:20) v <- numeric(1e6)
invisible(gc())
print(digits = 6, quantile(sort(d$y, decreasing = TRUE)))
R
on Rscript --vanilla script.R
