package bowline.runtime

import java.nio.FloatBuffer

/** How the learning rate changes. */
class Schedule(
    val kind: Kind = Kind.CONSTANT,
    val learningRate: Float = 1e-3f,
    /** The rate at the last step, as a fraction of [learningRate]. */
    val finalFraction: Float = 0.1f,
    val warmupSteps: Long = 0,
    /** Steps including the warmup. 0: unknown, allowed for [Kind.CONSTANT] only. */
    val totalSteps: Long = 0
) {
    enum class Kind { CONSTANT, LINEAR, COSINE }
}

/** What a step does if a gradient is infinite or NaN. */
enum class OnNonFinite { SKIP, STOP, ROLLBACK }

/** Options of a trainer, as TrainOptions in bowline/train.h. */
class TrainOptions(
    /** Sizes of the named dimensions of the inputs. */
    val dims: Map<String, Long> = mapOf(),
    val schedule: Schedule = Schedule(),
    /** null: AdamW. The names are those of `bowline train --optimizer`. */
    val optimizer: String? = null,
    val settings: Map<String, Float> = mapOf(),
    val entryPoint: String = "loss",
    val loss: String = "loss",
    /** Largest L2 norm of all gradients together. 0: no clipping. */
    val clipNorm: Float = 0f,
    /** Number of micro-batches per step. */
    val accumulation: Int = 1,
    /** Seed of dropout. */
    val seed: Long = 0,
    /** true: continues the state that the model file has. Not needed for [Trainer.resume]. */
    val fromCheckpoint: Boolean = false,
    val onNonFinite: OnNonFinite = OnNonFinite.SKIP,
    val computeDtype: DType? = null
)

class StepReport internal constructor(integers: LongArray, reals: FloatArray) {
    /** Finished steps. */
    val step: Long = integers[0]
    /** The step changed no weight: a gradient was infinite or NaN. */
    val skipped: Boolean = integers[1] != 0L
    val rolledBack: Boolean = integers[2] != 0L
    val weightsNonFinite: Boolean = integers[3] != 0L
    val nonFiniteSteps: Long = integers[4]
    /** The mean loss, in nats per label for a language model. */
    val loss: Float = reals[0]
    val gradNorm: Float = reals[1]
    val learningRate: Float = reals[2]
    val lossScale: Float = reals[3]
}

/** Where a training is in its data. A checkpoint contains it. */
class Progress(
    val epoch: Long = 0,
    val dataCursor: Long = 0,
    val dataSeed: Long = 0,
    /** Finished steps. Set by [Trainer.resume]. */
    val step: Long = 0,
    /** Micro-batches of the unfinished step. Set by [Trainer.resume]. */
    val microStep: Long = 0
) {
    internal fun toNative() = longArrayOf(epoch, dataCursor, dataSeed)
}

/** Whether a trainer can continue, as TrainState in bowline/train.h. */
enum class TrainState { READY, UNREAD, GRADIENTS_LOST, DAMAGED, PAUSED }

/** Trains the weights and adapters of a model that are not frozen. */
class Trainer private constructor(number: Long) : Handle("trainer", number) {
    private var hookId = 0L
    private var hook: Hook? = null

    val steps: Long get() = call { Native.trainerSteps(it) }
    val state: TrainState get() = call { TrainState.values()[Native.trainerState(it)] }

    override fun free(number: Long) {
        Native.trainerClose(number)
        Callbacks.remove(hookId)
    }

    /** One step with one batch. */
    fun step(vararg batch: Tensor): StepReport = step(listOf(batch.toList()))

    /** One step with [TrainOptions.accumulation] micro-batches. */
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

    // An exception of the hook says more than the error of the call that it stopped.
    private inline fun withHook(call: () -> Unit) {
        hook?.thrown = null
        try {
            call()
        } catch (failure: BowlineException) {
            throw hook?.thrown ?: failure
        }
    }

    /** The loss of a batch, without training. [outputs] get further outputs of the entry point. */
    fun evaluate(batch: List<Tensor>, outputs: List<Tensor> = listOf()): Float {
        val t = NativeTensors.of(batch, outputs)
        return call { Native.trainerEvaluate(it, t.names, t.dtypes, t.shapes, t.data, batch.size) }
    }

    /** Stops a step, which then throws `CANCELLED`; the weights are as before it. Any thread may call it. */
    fun cancel() = call { Native.trainerCancel(it) }

    /** null: the schedule applies again. */
    fun setLearningRate(rate: Float?) = call { Native.trainerSetLearningRate(it, rate ?: Float.NaN) }

    /**
     * [function] reads or changes each gradient before the update. It gets GradientInfo as JSON, and the values, which are
     * valid during the call. If it throws, [step] throws the same exception, and the weights are as before the step. null
     * removes the hook.
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

    /** Writes a checkpoint: the model, the state of the optimizer, and [progress]. */
    fun save(path: String, progress: Progress = Progress()) =
        call { Native.trainerSave(it, utf8(path), progress.toNative()) }

    /**
     * Writes a checkpoint and frees the memory of the device. [Model.to] and then [resume] continue, in this process or in
     * another one.
     */
    fun pause(path: String, progress: Progress = Progress()) =
        call { Native.trainerPause(it, utf8(path), progress.toNative()) }

    /** Continues from a checkpoint. [extend]: the schedule may have more steps than before. */
    fun resume(path: String, extend: Boolean = false): Progress {
        val members = LongArray(5)
        call { Native.trainerResume(it, utf8(path), extend, members) }
        return Progress(members[2], members[3], members[4], members[0], members[1])
    }

    companion object {
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
