import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** Keeps promise after promise, several at a time, and says in one line what became of each. */
final class Promises {
    interface Promise {
        void keep() throws Exception;
    }

    static String address;
    static final Map<String, Promise> ALL = new LinkedHashMap<>();

    /** ADDRESS [NAME...]: without names, all of them; the restart last, with nothing beside it. */
    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        Producing.promise();
        Consuming.promise();
        Groups.promise();
        Transactions.promise();
        Administration.promise();
        List<String> wanted = new ArrayList<>(List.of(arguments).subList(1, arguments.length));
        ExecutorService pool = Executors.newFixedThreadPool(6);
        ALL.forEach((name, promise) -> {
            if (wanted.isEmpty() || wanted.contains(name)) {
                pool.submit(() -> attempt(name, promise));
            }
        });
        pool.shutdown();
        pool.awaitTermination(5, TimeUnit.MINUTES);
        for (Map.Entry<String, Promise> each : Restart.promises().entrySet()) {
            if (wanted.isEmpty() || wanted.contains(each.getKey())) {
                attempt(each.getKey(), each.getValue());
            }
        }
        System.exit(0);
    }

    static void attempt(String name, Promise promise) {
        String outcome = "ok " + name;
        try {
            promise.keep();
        } catch (Throwable broken) {
            StringBuilder why = new StringBuilder();
            for (Throwable each = broken; each != null; each = each.getCause()) {
                why.append(why.isEmpty() ? "" : " < ").append(each);
            }
            for (StackTraceElement frame : broken.getStackTrace()) {
                if (frame.getFileName() != null && !frame.getClassName().contains(".")) {
                    why.append(" at ").append(frame.getFileName()).append(':');
                    why.append(frame.getLineNumber());
                }
            }
            outcome = "failed " + name + " " + why.toString().replaceAll("\\s+", " ");
        }
        synchronized (Promises.class) {
            System.out.println(outcome);
            System.out.flush();
        }
    }

    static void same(Object expected, Object found) {
        if (!expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    static void holds(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    interface Condition {
        boolean isMet() throws Exception;
    }

    static void eventually(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(40);
        while (!condition.isMet()) {
            holds(System.nanoTime() < deadline, "this never came about: " + what);
            Thread.sleep(5);
        }
    }

    /** Passes when the action fails with this error, alone or as the cause of another. */
    static Throwable fails(Class<? extends Throwable> expected, Promise action) {
        return fails(Set.of(expected), action);
    }

    static Throwable fails(Set<Class<? extends Throwable>> expected, Promise action) {
        try {
            action.keep();
        } catch (Throwable found) {
            for (Throwable each = found; each != null; each = each.getCause()) {
                for (Class<? extends Throwable> type : expected) {
                    if (type.isInstance(each)) {
                        return each;
                    }
                }
            }
            throw new AssertionError("expected " + expected + ", found " + found, found);
        }
        throw new AssertionError("expected " + expected + ", and nothing failed");
    }
}
