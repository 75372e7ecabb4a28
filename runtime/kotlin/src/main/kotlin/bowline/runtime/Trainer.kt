package bowline.runtime

import java.nio.FloatBuffer

/**
 * A learning rate schedule: the rate rises linearly during the warmup. Then it stays constant, or falls linearly or as a
 * cosine.
 */
class Schedule(
    val kind: Kind = Kind.CONSTANT,
    /** The highest learning rate, at the end of the warmup. */
    val learningRate: Float = 1e-3f,
    /** The rate at the last step, as a fraction of [learningRate]. [Kind.CONSTANT] ignores it. */
    val finalFraction: Float = 0.1f,
    val warmupSteps: Long = 0,
    /** Number of steps, including the warmup. 0: unknown, which only [Kind.CONSTANT] allows. */
    val totalSteps: Long = 0
) {
    enum class Kind { CONSTANT, LINEAR, COSINE }
}

/**
 * What [Trainer.step] does if the loss or a gradient is infinite or NaN. The step does not update the weights.
 *
 * SKIP: training continues with the next step. After 5 such steps in a row, the call throws `NON_FINITE`. STOP: the call
 * throws `NON_FINITE`. ROLLBACK: as STOP, because this package cannot take the snapshots that a rollback needs.
 */
enum class OnNonFinite { SKIP, STOP, ROLLBACK }

/** Options of [Trainer.create]; see TrainOptions in bowline/trainer.h. */
class TrainOptions(
    /** Sizes of the named dimensions of the inputs. */
    val dims: Map<String, Long> = mapOf(),
    val schedule: Schedule = Schedule(),
    /** For example "sgd". null: AdamW. The names are those of `bowline finetune --optimizer`. */
    val optimizer: String? = null,
    /** Settings of the optimizer that differ from their defaults, for example "momentum". Only if [optimizer] is not null. */
    val settings: Map<String, Float> = mapOf(),
    /** The entry point (named graph) to train. */
    val entryPoint: String = "loss",
    /** The output of the entry point that training minimizes. */
    val loss: String = "loss",
    /** Largest L2 norm of all gradients together. 0: no clipping. */
    val clipNorm: Float = 0f,
    /** Number of micro-batches per step (gradient accumulation). */
    val accumulation: Int = 1,
    /** Seed of dropout. */
    val seed: Long = 0,
    /**
     * true: starts with the training state of the checkpoint that the model was opened from. [Trainer.resume] does not need
     * it.
     */
    val fromCheckpoint: Boolean = false,
    val onNonFinite: OnNonFinite = OnNonFinite.SKIP,
    /** As in [Session.create]. */
    val computeDtype: DType? = null
)

/** The result of a training step; see StepReport in bowline/trainer.h. */
class StepReport internal constructor(integers: LongArray, reals: FloatArray) {
    /** Number of this step. The first step is 1. */
    val step: Long = integers[0]
    /** The weights did not change, because the loss or a gradient was infinite or NaN. */
    val skipped: Boolean = integers[1] != 0L
    val rolledBack: Boolean = integers[2] != 0L
    /** The update made a weight infinite or NaN. */
    val weightsNonFinite: Boolean = integers[3] != 0L
    /** Number of steps of this trainer with an infinite or NaN loss or gradient. */
    val nonFiniteSteps: Long = integers[4]
    /** The loss of the whole step. The cross entropy of a language model is in nats per label. */
    val loss: Float = reals[0]
    /** L2 norm of all gradients together, before clipping. */
    val gradNorm: Float = reals[1]
    val learningRate: Float = reals[2]
    val lossScale: Float = reals[3]
}

/**
 * The position of a training run in its data. A checkpoint contains it. You choose the meaning of [epoch], [dataCursor] and
 * [dataSeed].
 */
class Progress(
    val epoch: Long = 0,
    val dataCursor: Long = 0,
    val dataSeed: Long = 0,
    /** Number of finished steps. [Trainer.resume] sets it; [Trainer.save] ignores it. */
    val step: Long = 0,
    /** Number of finished micro-batches of the unfinished step. Set like [step]. */
    val microStep: Long = 0
) {
    internal fun toNative() = longArrayOf(epoch, dataCursor, dataSeed)
}

/**
 * What you can do after a call of a trainer failed; see TrainState in bowline/trainer.h. READY: make any call. UNREAD: call
 * [Trainer.step] again with the same batches. GRADIENTS_LOST and DAMAGED: call [Trainer.resume]. PAUSED: call [Model.to],
 * then [Trainer.resume].
 */
enum class TrainState { READY, UNREAD, GRADIENTS_LOST, DAMAGED, PAUSED }

/** Trains the weights and adapters of a model that are not frozen. A model can have one trainer at a time. */
class Trainer private constructor(number: Long) : Handle("trainer", number) {
    private var hookId = 0L
    private var hook: Hook? = null

    /** Number of finished steps, including skipped ones. */
    val steps: Long get() = call { Native.trainerSteps(it) }
    val state: TrainState get() = call { TrainState.values()[Native.trainerState(it)] }

    override fun free(number: Long) {
        Native.trainerClose(number)
        Callbacks.remove(hookId)
    }

    /** Trains one step with one batch: all inputs of the entry point. [TrainOptions.accumulation] must be 1. */
    fun step(vararg batch: Tensor): StepReport = step(listOf(batch.toList()))

    /** Trains one step. [microBatches] has [TrainOptions.accumulation] batches. */
    fun step(microBatches: List<List<Tensor>>): StepReport {
        val t = NativeTensors(microBatches.flatten())
        val counts = microBatches.map { it.size }.toIntArray()
        val integers = LongArray(5)
        val reals = FloatArray(4)
        call { pointer ->
            withHook { Native.trainerStep(pointer, t.names, t.dtypes, t.shapes, t.data, counts, integers, reals) }
        }
        return StepReport(integers, reals)
    }

    // Throws the exception of the hook, which says more than the error of the call that it stopped.
    private inline fun withHook(call: () -> Unit) {
        hook?.thrown = null
        try {
            call()
        } catch (failure: BowlineException) {
            throw hook?.thrown ?: failure
        }
    }

    /** Returns the loss of a batch without training. Also writes the outputs of the entry point that [outputs] names. */
    fun evaluate(batch: List<Tensor>, outputs: List<Tensor> = listOf()): Float {
        val t = NativeTensors.of(batch, outputs)
        return call { Native.trainerEvaluate(it, t.names, t.dtypes, t.shapes, t.data, batch.size) }
    }

    /**
     * Cancels the running [step] or [evaluate], which then throws `CANCELLED`. The weights are as before the step. If no call
     * runs, or the step already updates the weights, cancels the next call. Any thread may call it.
     */
    fun cancel() = call { Native.trainerCancel(it) }

    /** Sets the learning rate of the next steps. null: the schedule applies again. */
    fun setLearningRate(rate: Float?) = call { Native.trainerSetLearningRate(it, rate ?: Float.NaN) }

    /**
     * Sets a function that reads or changes each gradient before the update. null removes it.
     *
     * The arguments are the members of GradientInfo (bowline/trainer.h) as a JSON object, and the gradient. The gradient is
     * valid only during the call. If the function throws, [step] throws the same exception, and the weights are as before the
     * step.
     */
    fun setGradientHook(function: ((String, FloatBuffer) -> Unit)?) {
        val next = function?.let { Hook(it) }
        val id = next?.let { Callbacks.add(it) } ?: 0
        try {
            call { Native.trainerSetGradientHook(it, id) }
        } catch (failure: BowlineException) {
            Callbacks.remove(id)
            throw failure
        }
        Callbacks.remove(hookId)
        hookId = id
        hook = next
    }

    /** Writes a checkpoint, atomically: the model, the state of the optimizer, and [progress]. */
    fun save(path: String, progress: Progress = Progress()) =
        call { Native.trainerSave(it, utf8(path), progress.toNative()) }

    /**
     * Writes a checkpoint, then frees the memory of the trainer and its model on the device. To continue, call [Model.to] and
     * then [resume]. Another process can also resume the checkpoint.
     */
    fun pause(path: String, progress: Progress = Progress()) =
        call { Native.trainerPause(it, utf8(path), progress.toNative()) }

    /**
     * Continues from a checkpoint of the same model and options. Returns its progress. [extend]: allows
     * [Schedule.totalSteps] to differ from the checkpoint.
     */
    fun resume(path: String, extend: Boolean = false): Progress {
        val members = LongArray(5)
        call { Native.trainerResume(it, utf8(path), extend, members) }
        return Progress(members[2], members[3], members[4], members[0], members[1])
    }

    companion object {
        /**
         * Creates a trainer. The weights must be on [device]; see [Model.to]. Close it to free gradients and optimizer state.
         */
        fun create(model: Model, device: Device, options: TrainOptions = TrainOptions()): Trainer {
            val d = NativeDims(options.dims)
            val settings = options.settings.keys.map { utf8(it) }.toTypedArray()
            val schedule = options.schedule
            return model.call { m ->
                device.call {
                    Trainer(
                        Native.trainerCreate(
                            m, it, utf8(options.entryPoint), utf8(options.loss), d.names, d.sizes,
                            utf8OrNull(options.optimizer), settings, options.settings.values.toFloatArray(),
                            schedule.kind.ordinal, schedule.learningRate, schedule.finalFraction,
                            schedule.warmupSteps, schedule.totalSteps, options.clipNorm, options.accumulation,
                            options.seed, if (options.fromCheckpoint) 1 else 0, options.onNonFinite.ordinal,
                            numberOf(options.computeDtype)
                        )
                    )
                }
            }
        }
    }
}
