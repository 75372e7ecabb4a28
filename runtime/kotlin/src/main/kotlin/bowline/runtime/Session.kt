package bowline.runtime

/** Runs an entry point of a model, with fixed sizes of its named dimensions. */
class Session private constructor(number: Long) : Handle("session", number) {
    override fun free(number: Long) = Native.sessionClose(number)

    /** Runs with [inputs] and writes [outputs]. */
    fun run(inputs: List<Tensor>, outputs: List<Tensor>, scalars: List<Scalar> = listOf()) {
        val t = NativeTensors.of(inputs, outputs)
        val s = NativeScalars(scalars)
        call {
            Native.sessionRun(it, t.names, t.dtypes, t.shapes, t.data, inputs.size, s.names, s.values, s.isFloat)
        }
    }

    /**
     * Runs in a thread of the session, after the runs that were submitted before. The buffers of the tensors belong to the run
     * until it ends. [done] is called in this thread, with null after success. What it throws is ignored.
     */
    fun submit(
        inputs: List<Tensor>, outputs: List<Tensor>, scalars: List<Scalar> = listOf(),
        done: ((BowlineException?) -> Unit)? = null
    ): PendingRun {
        val t = NativeTensors.of(inputs, outputs)
        val s = NativeScalars(scalars)
        val id = Callbacks.add(Submitted(t, done))
        try {
            return call {
                PendingRun(
                    Native.sessionSubmit(
                        it, t.names, t.dtypes, t.shapes, t.data, inputs.size, s.names, s.values, s.isFloat, id
                    )
                )
            }
        } catch (failure: BowlineException) {
            Callbacks.remove(id)
            throw failure
        }
    }

    /** Stops a run, which then throws `CANCELLED`. Any thread may call it. */
    fun cancel() = call { Native.sessionCancel(it) }

    companion object {
        /** [computeDtype]: F16 or BF16 for faster and less exact matrix products. */
        fun create(
            model: Model, device: Device, entryPoint: String, dims: Map<String, Long> = mapOf(),
            computeDtype: DType? = null
        ): Session {
            val d = NativeDims(dims)
            return model.call { m ->
                device.call {
                    Session(Native.sessionCreate(m, it, utf8(entryPoint), d.names, d.sizes, numberOf(computeDtype)))
                }
            }
        }
    }
}

/** A submitted run. It may be closed before it ends; the run continues. Any thread may use it. */
class PendingRun internal constructor(number: Long) : Handle("pending run", number) {
    val isDone: Boolean get() = call { Native.pendingRunDone(it) }

    override fun free(number: Long) = Native.pendingRunClose(number)

    /** Waits until the run ends. Throws if it failed. */
    fun await() = call { Native.pendingRunWait(it) }

    fun cancel() = call { Native.pendingRunCancel(it) }
}
