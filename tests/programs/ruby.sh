# Ruby: an object graph, strings, JSON, threads, fibers, children, compaction, and minitest on top.
# packages: ruby ruby-minitest
# also: harden
# version: ruby --version
. "$(dirname "$0")/on.sh"

cat > script.rb <<'RUBY'
require 'digest'
require 'json'
require 'minitest'
require 'set'
require 'zlib'

def work(seed)
  words = (1..4000).map { |i| "word #{seed * i % 997} of #{seed}" }
  counts = words.tally
  tree = {}
  words.each { |word| word.each_char.inject(tree) { |node, letter| node[letter] ||= {} } }
  text = JSON.generate([counts.sort, tree], max_nesting: 0)
  same = JSON.parse(text, max_nesting: 0) == [counts.sort, tree]
  packed = Zlib::Inflate.inflate(Zlib::Deflate.deflate(text)) == text
  "#{seed}: #{counts.size} #{same} #{packed} #{Digest::SHA256.hexdigest(text)[0, 16]}"
end

puts work(1)
puts (2..5).map { |seed| Thread.new { work(seed) } }.map(&:value)
GC.start
GC.compact if GC.respond_to?(:compact)

reader, writer = IO.pipe
children = (1..4).map do |n|
  fork { reader.close; writer.puts "child #{n}: #{('x' * 1000 * n).scan(/xx/).size}"; exit!(0) }
end
writer.close
children.each { |pid| Process.wait(pid) }
puts reader.read.lines.sort

fibers = (1..200).map { |n| Fiber.new { 5.times { |i| Fiber.yield n * i }; n } }
puts fibers.map { |fiber| 6.times.sum { fiber.resume } }.sum

class ContainerTest < Minitest::Test
  def test_set = assert_equal(1000, Set.new((1..3000).map { |i| (i * 7) % 1000 }).size)
  def test_symbols = assert_equal(2000, (1..2000).map { |i| "symbol_#{i}".to_sym }.uniq.size)
  def test_numbers = assert_equal(2568, (1..1000).inject(:*).to_s.size)
  def test_match = assert_equal(%w[a1 b22], 'a1 -- b22'.scan(/[a-z]\d+/))
  def test_raise = assert_raises(NoMemoryError, ArgumentError) { 'x' * (1 << 62) }
  def test_objects = assert_operator(ObjectSpace.count_objects[:TOTAL], :>, 1000)
end
Minitest.seed = 1
result = Minitest::StatisticsReporter.new
result.start
Minitest::Runnable.runnables.each { |tests| tests.run(result, seed: 1) }
result.report
puts "#{result.count} tests, #{result.failures} failures, #{result.errors} errors"
RUBY
on ruby script.rb
