"""Reading again: from an offset, and from a moment in time."""

import time

from basics import check, consumer, new_topic, read, texts, unique, write
from confluent_kafka import TopicPartition

topic = new_topic("replay")
write(topic, [f"morning {number}" for number in range(5)])
time.sleep(0.05)
noon_ms = time.time_ns() // 1_000_000
time.sleep(0.05)
afternoon = write(topic, [f"afternoon {number}" for number in range(5)])

reader = consumer(unique("historian"))
print("from offset 3:")
reader.assign([TopicPartition(topic, 0, 3)])
again = texts(read(reader, 7))
print(f"  {', '.join(again)}")
check(again[:2] == ["morning 3", "morning 4"], "reading starts exactly at the offset asked for")

print("from noon:")
(place,) = reader.offsets_for_times([TopicPartition(topic, 0, noon_ms)])
reader.assign([place])
since_noon = texts(read(reader, 5))
print(f"  noon is offset {place.offset}: {', '.join(since_noon)}")
check(place.offset == afternoon[0].offset, "a time finds the first record written since then")

print("and once more from the beginning, since nothing was used up:")
reader.assign([TopicPartition(topic, 0, 0)])
everything = texts(read(reader, 10))
check(everything[0] == "morning 0" and len(everything) == 10, "all ten records are still there")
reader.close()
