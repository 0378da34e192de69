-- Trees of tables that are built and dropped, and a table of strings.
local function tree(depth)
  if depth == 0 then return {} end
  return {tree(depth - 1), tree(depth - 1)}
end
local function count(node)
  if node[1] then return 1 + count(node[1]) + count(node[2]) end
  return 1
end
local long, nodes = tree(16), 0
for i = 1, 60 do nodes = nodes + count(tree(12 + i % 4)) end
local names = {}
for i = 1, 600000 do names["k" .. (i * 7919 % 150001)] = tostring(i) .. "x" end
print(nodes, count(long))
