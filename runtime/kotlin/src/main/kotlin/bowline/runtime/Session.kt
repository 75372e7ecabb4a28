package bowline.runtime

/** Runs an entry point (named graph) of a model on a device. */
class Session private constructor(number: Long) : Handle("session", number) {
    override fun free(number: Long) = Native.sessionClose(number)

    /**
     * Runs the entry point and waits for the result. [inputs]: all inputs. [outputs]: those outputs that you want; the call
     * writes to their buffers. [scalars]: per-step scalars; others have their default.
     */
    fun run(inputs: List<Tensor>, outputs: List<Tensor>, scalars: List<Scalar> = listOf()) {
        val t = NativeTensors.of(inputs, outputs)
        val s = NativeScalars(scalars)
        call {
            Native.sessionRun(it, t.names, t.dtypes, t.shapes, t.data, inputs.size, s.names, s.values, s.isFloat)
        }
    }

    /**
     * Starts a run in a thread of the session and returns at once. Runs take place one after the other, in the order of the
     * calls. Do not use the buffers of the tensors until the run has ended.
     *
     * [done] is called after the run, with null or the error. Its exceptions are ignored. It is called in the thread of the
     * session, or in the thread that closes the session.
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

    /**
     * Cancels the running [run], which then throws `CANCELLED`. If none runs, cancels the next one. Any thread may call it.
     */
    fun cancel() = call { Native.sessionCancel(it) }

    companion object {
        /**
         * Creates a session. All weights must be on [device]; see [Model.to]. [dims]: the size of each named dimension of the
         * entry point, or the maximum of a dynamic dimension. [computeDtype]: F16 or BF16 for faster, less exact matrix
         * products.
         */
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

/** A run that [Session.submit] started. If you close this handle, the run still continues. Any thread may use it. */
class PendingRun internal constructor(number: Long) : Handle("pending run", number) {
    /** Whether the run has ended. Does not wait. */
    val isDone: Boolean get() = call { Native.pendingRunDone(it) }

    override fun free(number: Long) = Native.pendingRunClose(number)

    /** Waits until the run ends. Throws its error if it failed. */
    fun await() = call { Native.pendingRunWait(it) }

    /** Cancels this run and no other. [await] then throws `CANCELLED`, unless the result is already complete. */
    fun cancel() = call { Native.pendingRunCancel(it) }
}
