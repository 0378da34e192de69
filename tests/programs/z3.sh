# Z3: integers, bit vectors, arrays, strings, quantifiers, and what has no solution.
# packages: z3
# also: harden
# version: z3 --version
# when: long
. "$(dirname "$0")/on.sh"

for queens in 8 10; do
    {
        for i in $(seq $queens); do echo "(declare-const q$i Int)(assert (<= 1 q$i $queens))"; done
        for i in $(seq $queens); do
            for j in $(seq $((i + 1)) $queens); do
                echo "(assert (and (distinct q$i q$j)"
                echo "    (distinct (- q$i q$j) $((j - i)) $((i - j)))))"
            done
        done
        echo '(check-sat)'
        echo "(assert (and (= q1 1) (= q2 2)))(check-sat)"
    } > queens.smt2
    on z3 queens.smt2
done
cat > rest.smt2 <<'SMT'
(push)
(declare-const x (_ BitVec 64)) (declare-const y (_ BitVec 64))
(assert (not (= (bvadd (bvand x y) (bvor x y)) (bvadd x y)))) (check-sat)
(pop) (push)
(declare-const a (Array Int Int)) (declare-const i Int) (declare-const j Int)
(assert (not (= (select (store (store a i 1) j 2) i) (ite (= i j) 2 1)))) (check-sat)
(pop) (push)
(declare-const s String) (declare-const t String)
(assert (= (str.++ s "ab" t) "xxabyyabzz")) (assert (> (str.len s) 3)) (check-sat) (get-value (s t))
(pop) (push)
(declare-fun f (Int) Int)
(assert (forall ((n Int)) (=> (> n 0) (> (f n) (f (- n 1))))))
(assert (= (f 0) 0)) (assert (< (f 5) 5)) (check-sat)
(pop) (push)
(declare-const p Real) (declare-const q Real)
(assert (= (+ (* p p) (* q q)) 1.0)) (assert (= p (* 2.0 q))) (assert (> p 0.0)) (check-sat)
(pop)
SMT
on z3 rest.smt2
{
    # More pigeons than holes: no solution, after a long search.
    for p in $(seq 7); do
        for h in $(seq 6); do echo "(declare-const p${p}h$h Bool)"; done
        echo "(assert (or $(seq -f "p${p}h%g" -s ' ' 6)))"
    done
    for h in $(seq 6); do
        for p in $(seq 7); do
            for q in $(seq $((p + 1)) 7); do
                echo "(assert (or (not p${p}h$h) (not p${q}h$h)))"
            done
        done
    done
    echo '(check-sat)'
} > pigeons.smt2
on z3 pigeons.smt2
