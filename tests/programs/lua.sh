# Lua: tables, strings, closures, coroutines, garbage collection both ways.
# packages: lua5.4
# also: harden
# version: lua5.4 -v
. "$(dirname "$0")/on.sh"

on lua5.4 - <<'LUA'
local function work(mode)
    collectgarbage(mode)
    local counts, list = {}, {}
    for i = 1, 60000 do
        local key = "key" .. i * 7919 % 5003
        counts[key] = (counts[key] or 0) + 1
        if i % 10 == 0 then list[#list + 1] = key .. ":" .. counts[key] end
    end
    table.sort(list)
    local text = table.concat(list, ",")
    local digits = select(2, text:gsub("%d+", function(n) return n + 1 end))
    local sum = 0
    for i = 1, 2000 do
        local co = coroutine.wrap(function(n) for k = 1, 5 do n = n + coroutine.yield(n) end end)
        sum = sum + co(i)
        for k = 1, 3 do sum = sum + co(k) end
    end
    return #text, digits, sum, list[#list // 2], text:rep(20):upper():sub(-12)
end
print(work("incremental"))
print(work("generational"))
collectgarbage()
print(collectgarbage("count") < 4096)
LUA
