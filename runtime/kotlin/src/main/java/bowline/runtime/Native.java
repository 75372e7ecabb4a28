package bowline.runtime;

import java.nio.ByteBuffer;

/**
 * The native methods over the C interface. src/main/cpp implements them, and calls Callbacks.kt.
 *
 * <p>Java and not Kotlin, because only javac writes C++ declarations of native methods: a function
 * that does not fit its declaration does not compile. A text is UTF-8 with a zero byte at its end.
 * JNI's own strings have another encoding outside of the basic plane. A handle is a pointer, and 0
 * is NULL.
 */
final class Native {
  static {
    System.loadLibrary("bowline_jni");
  }

  private Native() {}

  static native byte[] version();

  // Devices.

  static native byte[] deviceList();

  /** Negative numbers and null: the default. log 0: no messages. */
  static native long deviceOpen(
      byte[] name, int threads, int nice, double maxLoad, long memoryBudget, byte[] cacheFolder, long log);

  static native void deviceClose(long device);

  static native byte[] deviceInfo(long device);

  // Models.

  static native long modelOpen(byte[] path, boolean memoryMap);

  static native long modelOpenDescriptor(int descriptor, long offset, long count, boolean memoryMap);

  static native void modelClose(long model);

  static native void modelSave(long model, byte[] path);

  static native void modelTo(long model, long device);

  static native long modelClone(long model);

  static native void modelCopyValuesFrom(long model, long other);

  static native byte[] modelDescribe(long model);

  static native byte[] modelMetadata(long model, byte[] key);

  static native void modelSetMetadata(long model, byte[] key, byte[] value);

  static native void modelGetValue(long model, byte[] name, int dtype, long[] shape, ByteBuffer out);

  static native void modelSetValue(long model, byte[] name, int dtype, long[] shape, ByteBuffer value);

  static native void modelFreeze(long model, byte[] name, boolean frozen);

  // Adapters. Reports are JSON.

  static native byte[] modelAddAdapter(
      long model, byte[] name, long rank, float alpha, float dropout, byte[] target, boolean freezeOthers, long seed);

  static native byte[] modelAdapters(long model);

  static native void modelSetAdapterWeight(long model, byte[] name, float weight);

  static native float modelAdapterWeight(long model, byte[] name);

  static native void modelRemoveAdapter(long model, byte[] name);

  static native void modelMergeAdapter(long model, byte[] name);

  static native void modelSaveAdapter(long model, byte[] name, byte[] path);

  static native byte[] modelLoadAdapter(long model, byte[] path, byte[] name);

  // Import. The functions throw UNSUPPORTED if the library was built without it.

  static native int importFormat(byte[] path);

  /** -1: the default. ties has pairs. progress 0: none. Writes the model to `model`, and returns JSON. */
  static native byte[] importModel(
      byte[] path, int task, byte[][] labels, int dtype, int kvDtype, byte[] pooling, boolean multiLabel,
      double labelSmoothing, long[] matryoshka, byte[][] ties, boolean tieEqual, boolean dropout, long seed,
      boolean skeleton, byte[] entry, byte[][] dims, long[] sizes, byte[][] shaped, long[][] shapes, byte[] batchDim,
      byte[][] given, double[][] values, byte[][] trainable, byte[][] freeze, boolean tieLayers, long progress, long[] model);

  static native byte[] modelNotFinite(long model);

  static native byte[] modelImportAdapter(long model, byte[] path, byte[] name);

  // Sessions. The arrays of tensors have the inputs first, and then the outputs.

  static native long sessionCreate(
      long model, long device, byte[] entryPoint, byte[][] dims, long[] sizes, int computeDtype);

  static native void sessionClose(long session);

  static native void sessionRun(
      long session, byte[][] names, int[] dtypes, long[][] shapes, ByteBuffer[] data, int inputs,
      byte[][] scalars, double[] values, boolean[] isFloat);

  /** The buffers must stay reachable until onDone() was called. */
  static native long sessionSubmit(
      long session, byte[][] names, int[] dtypes, long[][] shapes, ByteBuffer[] data, int inputs,
      byte[][] scalars, double[] values, boolean[] isFloat, long done);

  static native void sessionCancel(long session);

  static native boolean pendingRunDone(long run);

  static native void pendingRunWait(long run);

  static native void pendingRunCancel(long run);

  static native void pendingRunClose(long run);

  // Training.

  /** NaN, negative numbers and null: the default. */
  static native long trainerCreate(
      long model, long device, byte[] entryPoint, byte[] loss, byte[][] dims, long[] sizes, byte[] optimizer,
      byte[][] settings, float[] values, int schedule, float learningRate, float finalFraction, long warmupSteps,
      long totalSteps, float clipNorm, int accumulation, long seed, int start, int onNonFinite, int computeDtype);

  static native void trainerClose(long trainer);

  /** counts has the number of tensors of each micro-batch. Fills the 5 integers and 4 reals of a report. */
  static native void trainerStep(
      long trainer, byte[][] names, int[] dtypes, long[][] shapes, ByteBuffer[] data, int[] counts, long[] integers,
      float[] reals);

  static native float trainerEvaluate(
      long trainer, byte[][] names, int[] dtypes, long[][] shapes, ByteBuffer[] data, int inputs);

  static native void trainerCancel(long trainer);

  /** NaN: the schedule applies again. */
  static native void trainerSetLearningRate(long trainer, float rate);

  /** 0 removes the hook. */
  static native void trainerSetGradientHook(long trainer, long hook);

  /** progress: epoch, cursor and seed of the data. */
  static native void trainerSave(long trainer, byte[] path, long[] progress);

  static native void trainerPause(long trainer, byte[] path, long[] progress);

  /** Fills the members of a progress: step, micro_step, epoch, cursor and seed. Returns JSON. */
  static native byte[] trainerResume(long trainer, byte[] path, boolean extend, long[] progress);

  static native int trainerState(long trainer);

  static native long trainerSteps(long trainer);

  // Text.

  static native long tokenizerFrom(long model);

  static native long tokenizerOfBytes();

  static native void tokenizerClose(long tokenizer);

  static native int[] tokenizerEncode(long tokenizer, byte[] text, boolean specialTokens, boolean parseSpecial);

  static native byte[] tokenizerDecode(long tokenizer, int[] ids, boolean skipSpecial);

  static native long tokenizerSize(long tokenizer);

  static native long tokenizerStream(long tokenizer, boolean skipSpecial);

  static native byte[] decoderNext(long decoder, int id);

  static native byte[] decoderFlush(long decoder);

  static native void decoderClose(long decoder);

  static native long generatorCreate(
      long model, long device, long context, int computeDtype, float temperature, int topK, float topP, float minP,
      float repetitionPenalty, int repetitionWindow, long seed);

  static native void generatorClose(long generator);

  static native void generatorFeed(long generator, int[] ids);

  static native int generatorNext(long generator);

  static native void generatorRewind(long generator, long length);

  static native int[] generatorTokens(long generator);

  static native boolean generatorHasRoom(long generator);

  static native boolean generatorIsStop(long generator, int id);

  static native void generatorCancel(long generator);
}
