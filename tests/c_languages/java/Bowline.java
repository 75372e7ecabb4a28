import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/** The native methods of the test, over the C interface. bowline_jni.c implements them. */
final class Bowline {
  static {
    System.loadLibrary("bowline_jni");
  }

  private Bowline() {}

  /** An error of the library: its code, and its sentence as the message. */
  static final class Failure extends RuntimeException {
    private static final long serialVersionUID = 1;
    final int code;

    Failure(int code, byte[] message) {
      super(text(message));
      this.code = code;
    }
  }

  /** A float tensor in a direct buffer, whose memory the library uses without a copy. */
  static final class Tensor {
    final byte[] name;
    final long[] shape;
    final ByteBuffer data;

    Tensor(String name, ByteBuffer data, long... shape) {
      this.name = utf8(name);
      this.shape = shape;
      this.data = data;
    }
  }

  /** Sees and changes the gradient of a storage. An exception stops the step. */
  interface GradientHook {
    void call(byte[] of, ByteBuffer gradient) throws Exception;
  }

  // JNI converts a String to its own kind of UTF-8, which differs from the standard outside of the
  // basic plane. So texts are bytes here. A zero byte ends a text for C.
  static byte[] utf8(String text) {
    return (text + "\0").getBytes(StandardCharsets.UTF_8);
  }

  static String text(byte[] utf8) {
    return new String(utf8, StandardCharsets.UTF_8);
  }

  static ByteBuffer floats(int count) {
    return ByteBuffer.allocateDirect(4 * count).order(ByteOrder.nativeOrder());
  }

  static native String version();

  static native byte[] devices();

  static native long deviceOpen(byte[] name);

  static native void deviceClose(long device);

  static native long modelCreate();

  static native long modelOpen(byte[] path);

  static native void modelSave(long model, byte[] path);

  static native void modelClose(long model);

  /** Two numbers: the members of a bowline_parameter. */
  static native long[] modelParameter(long model, byte[] name, long[] shape);

  static native void modelMaterialize(long model, long seed);

  static native void modelTo(long model, long device);

  static native void modelSetMetadata(long model, byte[] key, byte[] value);

  static native byte[] modelMetadata(long model, byte[] key);

  static native long builderCreate(long model, byte[] name);

  /** An input of two dimensions. Values are bowline_value in one long. */
  static native long builderInput(long builder, byte[] name, byte[] rows, long columns);

  static native long builderParameter(long builder, long[] parameter);

  static native long builderOp(long builder, byte[] name, long[] inputs);

  static native void builderOutput(long builder, byte[] name, long value);

  static native void builderFinish(long builder);

  static native void builderClose(long builder);

  static native long sessionCreate(long model, long device, byte[] entryPoint, byte[] dim, long size);

  static native void sessionRun(long session, Tensor[] inputs, Tensor[] outputs);

  static native void sessionClose(long session);

  static native long trainerCreate(long model, long device, byte[] dim, long size, float learningRate);

  /** Returns the loss. */
  static native float trainerStep(long trainer, Tensor[] batch);

  /** Returns a hook for freeHook(), which is called after the hook was replaced or the trainer closed. */
  static native long trainerSetHook(long trainer, GradientHook hook);

  static native void freeHook(long hook);

  static native void trainerClose(long trainer);
}
