# Words that are counted and grouped, and a list of small records.
words = (1..500000).map { |i| "w#{i * 7919 % 40009}" }
counts = words.tally
sizes = counts.group_by(&:size).transform_values { |list| list.flatten.map(&:to_s).uniq.size }
records = (1..300000).map { |i| {id: i, text: "x#{i}" * 3} }
puts counts.size, sizes.size, records.size
