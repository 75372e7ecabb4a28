import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Trains and runs a small model from Java, in one thread and in two. */
final class BowlineTest {
  private static final int ROWS = 8;
  private static final int BAD_ARGUMENT = 1;
  private static final int IO_ERROR = 8;

  private BowlineTest() {}

  private static void expect(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  private static Bowline.Failure failureOf(Runnable call) {
    try {
      call.run();
    } catch (Bowline.Failure failure) {
      return failure;
    }
    throw new AssertionError("no exception");
  }

  private static Bowline.Tensor points() {
    ByteBuffer data = Bowline.floats(2 * ROWS);
    for (int i = 0; i < 2 * ROWS; ++i) {
      data.putFloat(4 * i, i * 5 % 7 / 3.0f - 1);
    }
    return new Bowline.Tensor("x", data, ROWS, 2);
  }

  /** The values of 2a - 3b + 1. */
  private static Bowline.Tensor targets(Bowline.Tensor points) {
    ByteBuffer data = Bowline.floats(ROWS);
    for (int i = 0; i < ROWS; ++i) {
      data.putFloat(4 * i, 2 * points.data.getFloat(8 * i) - 3 * points.data.getFloat(8 * i + 4) + 1);
    }
    return new Bowline.Tensor("target", data, ROWS, 1);
  }

  private static void build(long model, String name, long[][] parameters) {
    long builder = Bowline.builderCreate(model, Bowline.utf8(name));
    long x = Bowline.builderInput(builder, Bowline.utf8("x"), Bowline.utf8("batch"), 2);
    long weight = Bowline.builderParameter(builder, parameters[0]);
    long bias = Bowline.builderParameter(builder, parameters[1]);
    long y = Bowline.builderOp(builder, Bowline.utf8("Linear"), new long[] {x, weight, bias});
    if (name.equals("loss")) {
      long target = Bowline.builderInput(builder, Bowline.utf8("target"), Bowline.utf8("batch"), 1);
      y = Bowline.builderOp(builder, Bowline.utf8("MeanSquaredError"), new long[] {y, target});
    }
    Bowline.builderOutput(builder, Bowline.utf8(name.equals("loss") ? "loss" : "y"), y);
    Bowline.builderFinish(builder);
    Bowline.builderClose(builder);
  }

  private static long makeModel(long device) {
    long model = Bowline.modelCreate();
    long[][] parameters = {
      Bowline.modelParameter(model, Bowline.utf8("weight"), new long[] {1, 2}),
      Bowline.modelParameter(model, Bowline.utf8("bias"), new long[] {1}),
    };
    build(model, "loss", parameters);
    build(model, "predict", parameters);
    Bowline.modelMaterialize(model, 1);
    Bowline.modelTo(model, device);
    return model;
  }

  private static long makeTrainer(long model, long device) {
    return Bowline.trainerCreate(model, device, Bowline.utf8("batch"), ROWS, 0.05f);
  }

  private static ByteBuffer predict(long session) {
    ByteBuffer y = Bowline.floats(ROWS);
    Bowline.Tensor[] output = {new Bowline.Tensor("y", y, ROWS, 1)};
    Bowline.sessionRun(session, new Bowline.Tensor[] {points()}, output);
    return y;
  }

  private static void trainSaveOpen(long device) throws Exception {
    long model = makeModel(device);
    long trainer = makeTrainer(model, device);
    Bowline.Tensor x = points();
    Bowline.Tensor[] batch = {x, targets(x)};
    float first = Bowline.trainerStep(trainer, batch);
    float last = first;
    for (int step = 1; step < 400; ++step) {
      last = Bowline.trainerStep(trainer, batch);
    }
    expect(last < 0.01f * first, first + " -> " + last);
    Bowline.trainerClose(trainer);

    // A text outside of the basic plane, in a path and in the file.
    String thread = "\uD83E\uDDF5 f\u00FCr Java";
    Path path = Files.createTempFile("bowline_java", ".bowline");
    Bowline.modelSetMetadata(model, Bowline.utf8("title"), Bowline.utf8(thread));
    Bowline.modelSave(model, Bowline.utf8(path.toString()));
    long opened = Bowline.modelOpen(Bowline.utf8(path.toString()));
    Files.delete(path);
    expect(Bowline.text(Bowline.modelMetadata(opened, Bowline.utf8("title"))).equals(thread), "title");
    Bowline.modelTo(opened, device);
    long session = Bowline.sessionCreate(opened, device, Bowline.utf8("predict"), Bowline.utf8("batch"), ROWS);
    Bowline.modelClose(model);
    Bowline.modelClose(opened); // the session keeps it
    ByteBuffer y = predict(session);
    for (int i = 0; i < ROWS; ++i) {
      expect(Math.abs(y.getFloat(4 * i) - batch[1].data.getFloat(4 * i)) < 0.5f, "row " + i);
    }
    Bowline.sessionClose(session);
  }

  private static void throwFailures(long device) {
    Bowline.Failure failure = failureOf(() -> Bowline.modelOpen(Bowline.utf8("/nonexistent/\uD83E\uDDF5")));
    expect(failure.code == IO_ERROR, "code " + failure.code);
    expect(failure.getMessage().contains("/nonexistent/"), failure.getMessage());
    failure = failureOf(() -> Bowline.modelMaterialize(device, 1));
    expect(failure.code == BAD_ARGUMENT && failure.getMessage().contains("model"), failure.getMessage());
    // A buffer on the heap has no address.
    long model = makeModel(device);
    long trainer = makeTrainer(model, device);
    Bowline.Tensor heap = new Bowline.Tensor("x", ByteBuffer.allocate(8 * ROWS), ROWS, 2);
    failure = failureOf(() -> Bowline.trainerStep(trainer, new Bowline.Tensor[] {heap}));
    expect(failure.code == BAD_ARGUMENT, failure.getMessage());
    Bowline.trainerClose(trainer);
    Bowline.modelClose(model);
    failure = failureOf(() -> Bowline.modelClose(model));
    expect(failure.getMessage().equals("The handle of the model is closed."), failure.getMessage());
  }

  /** Two threads use a trainer in turn. */
  private static void useInTurn(long device) throws Exception {
    long model = makeModel(device);
    long trainer = makeTrainer(model, device);
    Bowline.Tensor x = points();
    Bowline.Tensor[] batch = {x, targets(x)};
    ExecutorService[] threads = {Executors.newSingleThreadExecutor(), Executors.newSingleThreadExecutor()};
    float before = Float.MAX_VALUE;
    for (int step = 0; step < 20; ++step) {
      Future<Float> loss = threads[step % 2].submit(() -> Bowline.trainerStep(trainer, batch));
      expect(loss.get() < before, "the loss falls");
      before = loss.get();
    }
    threads[0].submit(() -> Bowline.modelClose(model)).get();
    threads[1].submit(() -> Bowline.trainerClose(trainer)).get();
    threads[0].shutdown();
    threads[1].shutdown();
  }

  /** While a hook waits, a second thread gets an error, and so does the hook itself. */
  private static void useAtOnce(long device) throws Exception {
    long model = makeModel(device);
    long trainer = makeTrainer(model, device);
    Bowline.Tensor x = points();
    Bowline.Tensor[] batch = {x, targets(x)};
    CountDownLatch inside = new CountDownLatch(1);
    CountDownLatch done = new CountDownLatch(1);
    String[] inHook = {""};
    long hook = Bowline.trainerSetHook(trainer, (of, gradient) -> {
      inHook[0] = failureOf(() -> Bowline.trainerStep(trainer, batch)).getMessage();
      inside.countDown();
      done.await();
    });
    ExecutorService other = Executors.newSingleThreadExecutor();
    Future<Float> loss = other.submit(() -> Bowline.trainerStep(trainer, batch));
    inside.await();
    Bowline.Failure failure = failureOf(() -> Bowline.trainerStep(trainer, batch));
    done.countDown();
    expect(failure.code == BAD_ARGUMENT, "code " + failure.code);
    expect(failure.getMessage().startsWith("Another thread uses the model."), failure.getMessage());
    expect(inHook[0].startsWith("A callback of the model calls"), inHook[0]);
    expect(loss.get() > 0, "the step of the first thread");
    other.shutdown();
    Bowline.trainerClose(trainer);
    Bowline.freeHook(hook);
    Bowline.modelClose(model);
  }

  private static void changeGradients(long device) {
    long model = makeModel(device);
    long trainer = makeTrainer(model, device);
    Bowline.Tensor x = points();
    Bowline.Tensor[] batch = {x, targets(x)};
    int[] calls = {0};
    long zeros = Bowline.trainerSetHook(trainer, (of, gradient) -> {
      ++calls[0];
      expect(Bowline.text(of).startsWith("{"), "not JSON");
      gradient.order(ByteOrder.nativeOrder());
      while (gradient.hasRemaining()) {
        gradient.putFloat(0);
      }
    });
    float first = Bowline.trainerStep(trainer, batch);
    expect(Bowline.trainerStep(trainer, batch) == first && calls[0] == 4, "zeros in 2 gradients, 2 steps");
    long throwing = Bowline.trainerSetHook(trainer, (of, gradient) -> {
      throw new IllegalStateException("Enough.");
    });
    Bowline.freeHook(zeros);
    try {
      Bowline.trainerStep(trainer, batch);
      throw new AssertionError("no exception");
    } catch (IllegalStateException exception) {
      expect(exception.getMessage().equals("Enough."), exception.getMessage());
    }
    Bowline.trainerSetHook(trainer, null);
    Bowline.freeHook(throwing);
    Bowline.trainerStep(trainer, batch);
    expect(Bowline.trainerStep(trainer, batch) < first, "the loss falls again");
    Bowline.trainerClose(trainer);
    Bowline.modelClose(model);
  }

  public static void main(String[] arguments) throws Exception {
    String devices = Bowline.text(Bowline.devices());
    expect(devices.startsWith("[") && devices.contains("\"name\":\"cpu\""), devices);
    long device = Bowline.deviceOpen(Bowline.utf8("cpu"));
    trainSaveOpen(device);
    throwFailures(device);
    useInTurn(device);
    useAtOnce(device);
    changeGradients(device);
    Bowline.deviceClose(device);
    System.out.println("Version " + Bowline.version() + " works in Java.");
  }
}
