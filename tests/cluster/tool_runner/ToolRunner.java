import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/** Runs Kafka's command line tools one after the other in one process: each would load for seconds. */
public final class ToolRunner {
    private static final String SEPARATOR = "\u0001";

    private static CompletableFuture<Integer> ended = new CompletableFuture<>();

    /** A line of standard input is a class and its arguments; the answer ends with the exit code. */
    public static void main(String[] none) throws Exception {
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        PrintStream out = System.out;
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(SEPARATOR);
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream both = new PrintStream(said, true, StandardCharsets.UTF_8);
            System.setOut(both);
            System.setErr(both);
            ended = new CompletableFuture<>();
            Thread tool = new Thread(
                () -> run(words[0], Arrays.copyOfRange(words, 1, words.length), both));
            tool.setDaemon(true);
            tool.start();
            int code = ended.get();
            System.setOut(out);
            out.write(said.toByteArray());
            out.println(SEPARATOR + code);
            out.flush();
        }
    }

    /** Kafka calls it in place of the end of the process, and expects that nothing comes after it. */
    private static void end(int code) {
        ended.complete(code);
        while (true) {
            LockSupport.park();
        }
    }

    private static void run(String tool, String[] arguments, PrintStream both) {
        CompletableFuture<Integer> mine = ended;
        int code = 0;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            failure.getCause().printStackTrace(both);
            code = 1;
        } catch (ReflectiveOperationException wrong) {
            wrong.printStackTrace(both);
            code = 1;
        }
        mine.complete(code);
    }
}
