package bowline.test

import android.content.res.AssetFileDescriptor
import android.os.ParcelFileDescriptor
import bowline.runtime.BowlineException
import bowline.runtime.Callbacks
import bowline.runtime.Code
import bowline.runtime.DType
import bowline.runtime.Device
import bowline.runtime.DeviceOptions
import bowline.runtime.Generator
import bowline.runtime.Handle
import bowline.runtime.ImportFormat
import bowline.runtime.ImportOptions
import bowline.runtime.ImportPart
import bowline.runtime.ImportTask
import bowline.runtime.Model
import bowline.runtime.OnnxImportOptions
import bowline.runtime.Progress
import bowline.runtime.Sampler
import bowline.runtime.Schedule
import bowline.runtime.Session
import bowline.runtime.StepReport
import bowline.runtime.Tensor
import bowline.runtime.TextImportOptions
import bowline.runtime.Tokenizer
import bowline.runtime.TrainOptions
import bowline.runtime.TrainState
import bowline.runtime.Trainer
import bowline.runtime.android.openModel
import bowline.runtime.importAdapter
import bowline.runtime.importFormat
import bowline.runtime.importModel
import bowline.runtime.version
import java.io.File
import java.io.FileDescriptor
import java.io.RandomAccessFile
import java.nio.ByteBuffer
import java.util.concurrent.CountDownLatch
import java.util.concurrent.Executors

/**
 * Uses the package as an app does, and then wrongly. Arguments: a model that trains, a decoder, and the folder of the tests
 * if the library can import.
 */
private const val BATCH = 2L
private const val SEQ = 16L
private val dims = mapOf("batch" to BATCH, "seq" to SEQ)
// Outside of the basic plane: JNI's own strings would encode it in another way.
private const val THREAD = "\uD83E\uDDF5 f\u00FCr Kotlin"

private fun expect(holds: Boolean, what: Any?) {
    if (!holds) {
        throw AssertionError(what.toString())
    }
}

private fun failureOf(call: () -> Any?): BowlineException {
    try {
        call()
    } catch (failure: BowlineException) {
        return failure
    }
    throw AssertionError("The call has succeeded.")
}

private fun expectFailure(code: Code, part: String, call: () -> Any?) {
    val failure = failureOf(call)
    val message = failure.message ?: ""
    expect(failure.code == code && message.contains(part), "${failure.code}, $message")
}

private fun batch(): List<Tensor> {
    val text = "The quick brown fox jumps over the lazy dog and runs into the wood."
    val tokens = Tensor.allocate("tokens", DType.I32, BATCH, SEQ)
    val labels = Tensor.allocate("labels", DType.I32, BATCH, SEQ)
    for (i in 0 until (BATCH * SEQ).toInt()) {
        tokens.ints.put(i, text[i].toInt())
        labels.ints.put(i, text[i + 1].toInt())
    }
    return listOf(tokens, labels)
}

private fun options() = TrainOptions(dims = dims, schedule = Schedule(learningRate = 1e-3f))

private fun step(trainer: Trainer): StepReport = trainer.step(*batch().toTypedArray())

private fun logits() = Tensor.allocate("logits", DType.F32, BATCH, SEQ, 256)

private fun bytesOf(tensor: Tensor) = ByteArray(tensor.data.capacity()).also { tensor.data.duplicate().get(it) }

/** A file with the model behind [offset] other bytes, as in an APK. */
private fun packed(model: String, offset: Int): File = File.createTempFile("bowline", ".apk").also {
    it.writeBytes(ByteArray(offset) { 0x5A } + File(model).readBytes() + ByteArray(100))
}

private fun descriptorOf(file: RandomAccessFile): Int =
    FileDescriptor::class.java.getDeclaredField("fd").also { it.isAccessible = true }.getInt(file.fd)

private class Program(val path: String, val decoder: String, val device: Device) {
    fun open(): Model = Model.open(path).also { it.to(device) }

    fun trainAndResume() {
        val checkpoint = File.createTempFile("bowline", ".checkpoint").path
        val saved = File.createTempFile("bowline \uD83E\uDDF5", ".bowline").path
        open().use { model ->
            Trainer.create(model, device, options()).use { trainer ->
                val first = step(trainer)
                expect(first.step == 1L && first.loss > 0 && first.gradNorm > 0 && !first.skipped, first.loss)
                var last = first
                for (i in 0 until 7) {
                    last = step(trainer)
                }
                expect(last.loss < first.loss / 2 && last.learningRate == 1e-3f, "${first.loss} -> ${last.loss}")
                trainer.pause(checkpoint, Progress(epoch = 3, dataCursor = 1L shl 40, dataSeed = -1))
                expect(trainer.state == TrainState.PAUSED, trainer.state)
                model.to(device)
                val progress = trainer.resume(checkpoint)
                expect(progress.step == 8L && progress.epoch == 3L, progress.step)
                expect(progress.dataCursor == 1L shl 40 && progress.dataSeed == -1L, progress.dataCursor)
                expect(trainer.state == TrainState.READY && trainer.steps == 8L, trainer.state)
                expect(step(trainer).loss < first.loss / 2, "the loss after resume()")
                expect(Math.abs(trainer.evaluate(batch()) - step(trainer).loss) < 1e-4f, "evaluate()")
            }
            model.setMetadata("title", THREAD)
            model.save(saved)
        }
        Model.open(saved, memoryMap = false).use { expect(it.metadata("title") == THREAD, it.metadata("title")) }
        File(checkpoint).delete()
        File(saved).delete()
    }

    fun runs() {
        open().use { model ->
            Session.create(model, device, "forward", dims).use { session ->
                val once = logits()
                session.run(batch().take(1), listOf(once))
                expect(once.floats.get(0) != 0f, "logits")
                val later = logits()
                val done = CountDownLatch(1)
                var thread: Thread? = null
                session.submit(batch().take(1), listOf(later)) { failure ->
                    expect(failure == null, failure)
                    thread = Thread.currentThread()
                    done.countDown()
                }.use { it.await() }
                done.await()
                expect(thread != Thread.currentThread(), "submit() calls back in a thread of the session")
                expect(bytesOf(once).contentEquals(bytesOf(later)), "run() and submit() differ")
                session.submit(batch().take(1), listOf(later)) { throw IllegalStateException("ignored") }.use { it.await() }
            }
        }
    }

    fun opensAssets() {
        for (offset in intArrayOf(0, 4096, 4100)) {
            val file = packed(path, offset)
            val size = File(path).length()
            RandomAccessFile(file, "r").use {
                val asset = AssetFileDescriptor(ParcelFileDescriptor(descriptorOf(it)), offset.toLong(), size)
                openModel(asset)
            }.use { model -> // the descriptor is closed
                model.to(device)
                Session.create(model, device, "forward", dims).use { it.run(batch().take(1), listOf(logits())) }
            }
            RandomAccessFile(file, "r").use {
                val descriptor = descriptorOf(it)
                expectFailure(Code.BAD_FILE, "") { Model.openDescriptor(descriptor, offset + 8L, size) }
                expectFailure(Code.BAD_ARGUMENT, "at least 0") { Model.openDescriptor(descriptor, -1, size) }
            }
            file.delete()
        }
    }

    fun adapters() {
        val path = File.createTempFile("bowline", ".adapter").path
        open().use { model ->
            expect(model.addAdapter("mine", "*.weight", rank = 2).startsWith("{"), "a report in JSON")
            Trainer.create(model, device, options()).use { step(it) }
            model.saveAdapter("mine", path)
        }
        open().use { model ->
            expect(model.loadAdapter(path) == "mine", "the name of the adapter")
            expect(model.adapters == "[\"mine\"]", model.adapters)
            model.setAdapterWeight("mine", 0.5f)
            expect(model.adapterWeight("mine") == 0.5f, "the weight")
            model.mergeAdapter("mine")
            expect(model.adapters == "[]", model.adapters)
            expectFailure(Code.BAD_ARGUMENT, "\"mine\"") { model.removeAdapter("mine") }
        }
        File(path).delete()
    }

    fun imports(tests: String) {
        val llama = "$tests/import/fixtures/llama"
        val onnx = "$tests/onnx/fixtures/batched.onnx"
        expect(importFormat(llama) == ImportFormat.HUGGING_FACE && importFormat(onnx) == ImportFormat.ONNX, "formats")
        val parts = mutableSetOf<ImportPart>()
        val imported = importModel(llama) { part, done, total ->
            expect(done < total, "$done of $total")
            parts.add(part)
            true
        }
        expect(parts == setOf(ImportPart.FILES, ImportPart.TENSORS), parts)
        expect(imported.report.contains("\"format\":\"hugging_face\""), imported.report)
        expect(imported.notFinite == "[]", imported.notFinite)
        imported.model.use { model ->
            model.to(device)
            Generator.create(model, device).use { it.feed(intArrayOf(1, 5)) }
        }
        expectFailure(Code.CANCELLED, "The import was cancelled.") { importModel(llama) { _, _, _ -> false } }
        try {
            importModel(llama) { _, _, _ -> throw IllegalStateException("Enough.") }
            throw AssertionError("no exception")
        } catch (thrown: IllegalStateException) {
            expect(thrown.message == "Enough.", thrown)
        }
        val classifier = TextImportOptions(ImportTask.CLASSIFY, listOf("knot", THREAD), DType.BF16, seed = 7)
        importModel("$tests/import/fixtures/bert", ImportOptions(classifier)).model.use { model ->
            expect(model.metadata("task") == "classify" && model.description.contains("bf16"), model.description)
            val saved = File.createTempFile("bowline", ".bowline")
            model.save(saved.path)
            expect(saved.readText().contains("knot\n$THREAD"), "the labels")
            saved.delete()
        }
        val tied = TextImportOptions(ties = listOf("model.norm.weight" to "lm_head.weight"))
        expectFailure(Code.BAD_ARGUMENT, "lm_head.weight") { importModel(llama, ImportOptions(tied)) }
        importsOnnx(onnx)
        importModel("$tests/peft/fixtures/llama").model.use { model ->
            expect(model.importAdapter("$tests/peft/fixtures/llama_qv", "mine").contains("\"targets\":["), "a report in JSON")
            expect(model.adapters == "[\"mine\"]", model.adapters)
            expectFailure(Code.BAD_FILE, "is not a PEFT adapter") { model.importAdapter(llama) }
        }
        expectFailure(Code.BAD_FILE, "/nonexistent") { importModel("/nonexistent/$THREAD") }
        expectFailure(Code.BAD_FILE, "already a Bowline model file") { importFormat(decoder) }
    }

    private fun importsOnnx(path: String) {
        val shapes = mapOf("x" to longArrayOf(2, 1, 8, 8), "labels" to longArrayOf(2))
        val options = OnnxImportOptions("main", shapes = shapes, freeze = listOf("*"))
        val wrong = OnnxImportOptions(dims = mapOf("batch" to 2L), given = mapOf("none" to doubleArrayOf(1.0)))
        try {
            importModel(path, ImportOptions(onnx = options)).model.use { model ->
                expect(model.description.contains("\"name\":\"main\""), model.description)
                expect(!model.description.contains("\"trainable\":true"), model.description)
            }
        } catch (failure: BowlineException) {
            expect(failure.code == Code.UNSUPPORTED && failure.message!!.contains("no reader of ONNX"), failure)
            return
        }
        expectFailure(Code.BAD_ARGUMENT, "no input \"none\"") { importModel(path, ImportOptions(onnx = wrong)) }
    }

    /** A library without the import says so. */
    fun importsNothing() {
        expectFailure(Code.UNSUPPORTED, "BOWLINE_IMPORT=OFF") { importFormat(decoder) }
        expectFailure(Code.UNSUPPORTED, "BOWLINE_IMPORT=OFF") { importModel(decoder) }
        open().use { model -> expectFailure(Code.UNSUPPORTED, "BOWLINE_IMPORT=OFF") { model.importAdapter(decoder) } }
    }

    fun generates() {
        Model.open(decoder).use { model ->
            model.to(device)
            Tokenizer.of(model).use { tokenizer ->
                val ids = tokenizer.encode(THREAD, specialTokens = false)
                expect(ids.size == THREAD.toByteArray().size, ids.size)
                expect(tokenizer.decode(ids) == THREAD, tokenizer.decode(ids))
                tokenizer.stream().use { decoder ->
                    val text = ids.joinToString("") { decoder.next(it) } + decoder.flush()
                    expect(text == THREAD, text)
                }
                Generator.create(model, device, 48, Sampler(temperature = 1f, seed = 7)).use { generator ->
                    val parts = StringBuilder()
                    val text = generator.generate(tokenizer, "Once", 20) { parts.append(it); true }
                    expect(parts.toString() == text && text.isNotBlank(), text)
                    expect(generator.tokens.size in 5..24, generator.tokens.size)
                    generator.rewind(0)
                    expect(generator.generate(tokenizer, "Once", 20) == text, "the same seed, another text")
                    generator.rewind(0)
                    expect(generator.generate(tokenizer, "Once", 20) { false }.length < text.length, "false stops")
                    generator.rewind(0)
                    try {
                        generator.generate(tokenizer, "Once", 20) { throw IllegalStateException("Enough.") }
                        throw AssertionError("no exception")
                    } catch (thrown: IllegalStateException) {
                        expect(thrown.message == "Enough.", thrown)
                    }
                    expectFailure(Code.BAD_ARGUMENT, "") { generator.rewind(1000) }
                    expectFailure(Code.BAD_ARGUMENT, "-1 tokens") { generator.rewind(-1) }
                    expectFailure(Code.INDEX_OUT_OF_RANGE, "256") { generator.feed(intArrayOf(256)) }
                }
            }
        }
    }

    fun refusesWrongTensors() {
        open().use { model ->
            Session.create(model, device, "forward", dims).use { session ->
                val tokens = batch()[0]
                fun refused(part: String, wrong: Tensor, out: Tensor = logits()) =
                    expectFailure(Code.BAD_ARGUMENT, part) { session.run(listOf(wrong), listOf(out)) }
                val heap = ByteBuffer.allocate(tokens.data.capacity())
                refused("\"tokens\" is not direct", Tensor("tokens", DType.I32, tokens.shape, heap))
                refused("i32[16,2]", Tensor("tokens", DType.I32, longArrayOf(SEQ, BATCH), tokens.data))
                refused("f32", Tensor("tokens", DType.F32, tokens.shape, tokens.data))
                refused("bytes", Tensor("tokens", DType.I32, tokens.shape, ByteBuffer.allocateDirect(4)))
                refused("\"tokens\" is missing", Tensor("other", DType.I32, tokens.shape, tokens.data))
                val odd = ByteBuffer.allocateDirect(tokens.data.capacity() + 1).also { it.position(1) }
                refused("\"tokens\" is not aligned", Tensor("tokens", DType.I32, tokens.shape, odd))
                val out = logits()
                refused("read-only", tokens, Tensor(out.name, out.dtype, out.shape, out.data.asReadOnlyBuffer()))
                refused("zero character", Tensor("tok\u0000ens", DType.I32, tokens.shape, tokens.data))
                refused("surrogate", Tensor("tokens\uD83E", DType.I32, tokens.shape, tokens.data))
                expectFailure(Code.BAD_ARGUMENT, "not direct") {
                    model.getValue(Tensor("embedding.weight", DType.F32, longArrayOf(256, 128), ByteBuffer.allocate(131072)))
                }
                val wrong = batch()[0].also { it.ints.put(3, 300) }
                expectFailure(Code.INDEX_OUT_OF_RANGE, "300") { session.run(listOf(wrong), listOf(logits())) }
                session.run(listOf(tokens), listOf(logits()))
            }
        }
        expectFailure(Code.IO_ERROR, "/nonexistent/$THREAD") { Model.open("/nonexistent/$THREAD") }
        expectFailure(Code.BAD_ARGUMENT, "\"abacus\"") { Device.open("abacus") }
    }

    fun refusesUseAfterClose() {
        val model = open()
        val session = Session.create(model, device, "forward", dims)
        val trainer = Trainer.create(model, device, options())
        val tokenizer = Tokenizer.ofBytes()
        model.close() // the session and the trainer keep it
        session.run(batch().take(1), listOf(logits()))
        val calls = listOf<Pair<Handle, () -> Any?>>(
            model to { model.save("/tmp/never") }, session to { session.cancel() }, trainer to { step(trainer) },
            tokenizer to { tokenizer.encode("a") }
        )
        for ((handle, call) in calls) {
            handle.close()
            handle.close()
            expectFailure(Code.BAD_ARGUMENT, "is closed.", call)
        }
    }

    /** While a hook waits, another thread gets an error, and so do the hook and close(). */
    fun refusesUseAtOnce() {
        val model = open()
        val trainer = Trainer.create(model, device, options())
        val inside = CountDownLatch(1)
        val leave = CountDownLatch(1)
        var fromHook: BowlineException? = null
        trainer.setGradientHook { _, _ ->
            if (inside.count > 0) {
                fromHook = failureOf { step(trainer) }
                inside.countDown()
                leave.await()
            }
        }
        // A daemon, so that a failed test ends while the thread waits.
        val other = Executors.newSingleThreadExecutor { task -> Thread(task).also { it.isDaemon = true } }
        val loss = other.submit<Float> { step(trainer).loss }
        inside.await()
        expectFailure(Code.BAD_ARGUMENT, "Another thread uses the model.") { step(trainer) }
        expectFailure(Code.BAD_ARGUMENT, "cannot be closed, because a call uses it") { trainer.close() }
        leave.countDown()
        expect(fromHook?.message?.startsWith("A callback of the model calls") ?: false, fromHook)
        expect(loss.get() > 0, "the step of the other thread")
        other.submit { trainer.close() }.get()
        other.shutdown()
        model.close()
    }

    fun hooksThrow() {
        open().use { model ->
            Trainer.create(model, device, options()).use { trainer ->
                var calls = 0
                trainer.setGradientHook { of, gradient ->
                    ++calls
                    expect(of.startsWith("{") && gradient.capacity() > 0, of)
                    for (i in 0 until gradient.capacity()) {
                        gradient.put(i, 0f)
                    }
                }
                val first = step(trainer)
                expect(first.gradNorm == 0f && calls > 10, "${first.gradNorm} after $calls calls")
                trainer.setGradientHook { _, _ -> throw IllegalStateException("Enough.") }
                try {
                    step(trainer)
                    throw AssertionError("no exception")
                } catch (thrown: IllegalStateException) {
                    expect(thrown.message == "Enough.", thrown)
                }
                trainer.setGradientHook(null)
                expect(step(trainer).gradNorm > 0, "the hook is gone")
                trainer.cancel()
                trainer.setLearningRate(0.5f)
            }
        }
    }
}

fun main(arguments: Array<String>) {
    expect(Device.list().contains("\"name\":\"cpu\""), Device.list())
    var messages = 0
    Device.open("cpu", DeviceOptions(threads = 2, log = { _, _ -> ++messages; throw IllegalStateException("ignored") })).use { device ->
        expect(device.info.startsWith("{"), device.info)
        val program = Program(arguments[0], arguments[1], device)
        program.trainAndResume()
        program.runs()
        program.opensAssets()
        program.adapters()
        if (arguments.size > 2) program.imports(arguments[2]) else program.importsNothing()
        program.generates()
        program.refusesWrongTensors()
        program.refusesUseAfterClose()
        program.refusesUseAtOnce()
        program.hooksThrow()
    }
    expect(messages > 3, "$messages messages")
    expect(Callbacks.count() == 0, "${Callbacks.count()} callbacks stay registered")
    println("Version $version works in Kotlin.")
}
