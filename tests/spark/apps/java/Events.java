import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A source whose offsets are in Kafka's form, for every version of Spark: one topic with two
 * partitions, which grow with the clock. The option `start` is where it begins, as Kafka takes it.
 */
public final class Events implements TableProvider {
    private static final StructType SCHEMA = StructType.fromDDL("value long");
    private static final Pattern POSITION = Pattern.compile("\"([01])\":(\\d+)");

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return SCHEMA;
    }

    @Override
    public Table getTable(StructType schema, Transform[] parts, Map<String, String> options) {
        return new EventsTable();
    }

    private static final class EventsTable implements Table, SupportsRead {
        @Override
        public String name() {
            return "events";
        }

        @Override
        public StructType schema() {
            return SCHEMA;
        }

        @Override
        public Set<TableCapability> capabilities() {
            return Set.of(TableCapability.MICRO_BATCH_READ);
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            Scan scan = new Scan() {
                @Override
                public StructType readSchema() {
                    return SCHEMA;
                }

                @Override
                public MicroBatchStream toMicroBatchStream(String checkpoint) {
                    return new Stream(options.get("start"));
                }
            };
            return () -> scan;
        }
    }

    private static final class Stream implements MicroBatchStream {
        private final String start;

        Stream(String start) {
            this.start = start;
        }

        @Override
        public Offset initialOffset() {
            return start.equals("earliest") ? new Position(0, 0) : deserializeOffset(start);
        }

        @Override
        public Offset latestOffset() {
            long ticks = System.currentTimeMillis() / 200;
            return new Position(3 * ticks, ticks);
        }

        @Override
        public Offset deserializeOffset(String json) {
            Map<String, Long> found = new TreeMap<>();
            Matcher matcher = POSITION.matcher(json);
            while (matcher.find()) {
                found.put(matcher.group(1), Long.parseLong(matcher.group(2)));
            }
            return new Position(found.get("0"), found.get("1"));
        }

        @Override
        public InputPartition[] planInputPartitions(Offset first, Offset last) {
            Position end = (Position) last;
            return new InputPartition[] {new Part(end.first), new Part(end.second)};
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return new Readers();
        }

        @Override
        public void commit(Offset end) {}

        @Override
        public void stop() {}
    }

    private static final class Position extends Offset {
        final long first;
        final long second;

        Position(long first, long second) {
            this.first = first;
            this.second = second;
        }

        @Override
        public String json() {
            return "{\"events\":{\"0\":" + first + ",\"1\":" + second + "}}";
        }
    }

    /** One event is enough to be read. */
    private static final class Part implements InputPartition {
        final long value;

        Part(long value) {
            this.value = value;
        }
    }

    private static final class Readers implements PartitionReaderFactory {
        @Override
        public PartitionReader<InternalRow> createReader(InputPartition part) {
            return new PartitionReader<>() {
                private boolean isRead;

                @Override
                public boolean next() {
                    boolean isFirst = !isRead;
                    isRead = true;
                    return isFirst;
                }

                @Override
                public InternalRow get() {
                    return new GenericInternalRow(new Object[] {((Part) part).value});
                }

                @Override
                public void close() {}
            };
        }
    }
}
