import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.Trigger;

/** An application without Python: `Job [fail]`. One batch, from where `submit` says. */
public final class Job {
    private Job() {}

    public static void main(String[] words) throws Exception {
        SparkSession spark = SparkSession.builder().getOrCreate();
        String start = spark.conf().get("spark.sluicegate.startingOffsets", "earliest");
        System.out.println("starts at " + start);
        StreamingQuery query = spark.readStream().format("Events").option("start", start).load()
            .writeStream().format("noop")
            .option("checkpointLocation", spark.conf().get("spark.sluicegate.checkpoint"))
            .trigger(Trigger.AvailableNow()).start();
        query.awaitTermination();
        System.out.println("batch " + query.lastProgress().batchId());
        if (words.length > 0) {
            throw new IllegalStateException("asked to " + words[0]);
        }
        spark.stop();
    }
}
