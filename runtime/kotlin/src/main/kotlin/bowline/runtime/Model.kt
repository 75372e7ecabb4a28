package bowline.runtime

/**
 * A neural network: its weights, graphs, tokenizer and metadata.
 *
 * Use a model with its sessions, trainer and generator in one thread at a time. A call from a second thread at the same time
 * throws `BAD_ARGUMENT`. Only [copyValuesFrom] and the functions named `cancel` may be called from any thread.
 */
class Model internal constructor(number: Long) : Handle("model", number) {
    /** The members of ModelInfo (bowline/describe.h) as a JSON object. */
    val description: String get() = call { textOf(Native.modelDescribe(it)) }

    override fun free(number: Long) = Native.modelClose(number)

    /** Writes the model to a file, atomically: if the call fails, an earlier file at this path is unchanged. */
    fun save(path: String) = call { Native.modelSave(it, utf8(path)) }

    /** Moves all weights to a device. */
    fun to(device: Device) = call { model -> device.call { Native.modelTo(model, it) } }

    /** Returns a copy with the same values. Another thread may use the copy while this model runs. */
    fun copy(): Model = call { Model(Native.modelClone(it)) }

    /**
     * Copies all values from a model with the same parameters. If a session or trainer of one of the two runs, waits for it.
     */
    fun copyValuesFrom(other: Model) = call { to -> other.call { Native.modelCopyValuesFrom(to, it) } }

    /** The metadata entry of a key. Empty if there is no such entry. */
    fun metadata(key: String): String = call { textOf(Native.modelMetadata(it, utf8(key))) }

    /** Sets a metadata entry. Files contain the metadata. */
    fun setMetadata(key: String, value: String) = call { Native.modelSetMetadata(it, utf8(key), utf8(value)) }

    /** Copies the values of the parameter `out.name` to [out], which must have its dtype and shape. */
    fun getValue(out: Tensor) = transfer(out) { model, t ->
        Native.modelGetValue(model, t.names[0], t.dtypes[0], t.shapes[0], t.data[0])
    }

    /** Sets the values of the parameter `value.name`. [value] must have its dtype and shape. */
    fun setValue(value: Tensor) = transfer(value) { model, t ->
        Native.modelSetValue(model, t.names[0], t.dtypes[0], t.shapes[0], t.data[0])
    }

    private inline fun transfer(tensor: Tensor, native: (Long, NativeTensors) -> Unit) {
        if (!tensor.data.isDirect) {
            refuse("The buffer of tensor \"${tensor.name}\" is not direct. Tensor.allocate() makes a buffer that fits.")
        }
        call { native(it, NativeTensors(listOf(tensor))) }
    }

    /**
     * Freezes a parameter and all that are tied to it: training does not change them. [frozen] false reverses this. It throws
     * `BAD_ARGUMENT` for a parameter that is tied or quantized.
     */
    fun freeze(name: String, frozen: Boolean = true) = call { Native.modelFreeze(it, utf8(name), frozen) }

    // Adapters (LoRA).

    /**
     * Adds a trainable low-rank adapter (LoRA) to the matrices whose names match [target]. bowline/adapters.h explains the
     * arguments (AdapterOptions). [freezeOthers]: freezes the weights of the model, so that only adapters are trained.
     * Returns the members of AdapterReport as a JSON object.
     */
    fun addAdapter(
        name: String, target: String = "*", rank: Long = 8, alpha: Float = 16f, dropout: Float = 0f,
        freezeOthers: Boolean = true, seed: Long = 0
    ): String = call {
        textOf(Native.modelAddAdapter(it, utf8(name), rank, alpha, dropout, utf8(target), freezeOthers, seed))
    }

    /** The names of all adapters, as a JSON array. */
    val adapters: String get() = call { textOf(Native.modelAdapters(it)) }

    /** Scales the change that an adapter makes. 1: as trained. 0: disables the adapter. */
    fun setAdapterWeight(name: String, weight: Float) = call { Native.modelSetAdapterWeight(it, utf8(name), weight) }

    /** The weight that [setAdapterWeight] set; 1 by default. */
    fun adapterWeight(name: String): Float = call { Native.modelAdapterWeight(it, utf8(name)) }

    /** Removes an adapter. Weights that [addAdapter] froze stay frozen. */
    fun removeAdapter(name: String) = call { Native.modelRemoveAdapter(it, utf8(name)) }

    /** Adds the change of the adapter to the weights of the model, then removes the adapter. */
    fun mergeAdapter(name: String) = call { Native.modelMergeAdapter(it, utf8(name)) }

    /** Writes an adapter to a file, without the model. */
    fun saveAdapter(name: String, path: String) = call { Native.modelSaveAdapter(it, utf8(name), utf8(path)) }

    /**
     * Adds an adapter from a file, which must belong to the weights of this model. [name] null: keeps the name in the file.
     * Returns the name.
     */
    fun loadAdapter(path: String, name: String? = null): String =
        call { textOf(Native.modelLoadAdapter(it, utf8(path), utf8OrNull(name))) }

    companion object {
        /** Opens a `.bowline` file. [memoryMap] false: reads the whole file into memory instead of mapping it. */
        fun open(path: String, memoryMap: Boolean = true): Model = Model(Native.modelOpen(utf8(path), memoryMap))

        /**
         * Opens a `.bowline` file that is a part of an open file, for example an asset in an APK. The part begins at [offset]
         * and has [count] bytes; 0: to the end of the file. You may close the descriptor after the call.
         */
        fun openDescriptor(descriptor: Int, offset: Long = 0, count: Long = 0, memoryMap: Boolean = true): Model {
            if (offset < 0 || count < 0) {
                refuse("The range of the file begins at $offset and has $count bytes, but both must be at least 0.")
            }
            return Model(Native.modelOpenDescriptor(descriptor, offset, count, memoryMap))
        }
    }
}
