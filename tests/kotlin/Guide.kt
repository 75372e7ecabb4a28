// Runs the files of samples/guides/android.md. Argument: the model of samples/finetune_text.
import android.content.res.AssetFileDescriptor
import android.os.ParcelFileDescriptor
import bowline.runtime.DType
import bowline.runtime.Tensor
import java.io.File
import java.io.FileDescriptor
import java.io.RandomAccessFile

private const val TEXT = "The quick brown fox jumps over the lazy dog and runs into the wood."

private fun expect(holds: Boolean, what: String) {
    if (!holds) {
        throw AssertionError(what)
    }
}

private fun batch(step: Long): Array<Tensor> {
    val tokens = Tensor.allocate("tokens", DType.I32, 2, 16)
    val labels = Tensor.allocate("labels", DType.I32, 2, 16)
    for (i in 0 until 32) {
        val at = i + step.toInt() % 30
        tokens.ints.put(i, TEXT[at].toInt())
        labels.ints.put(i, TEXT[at + 1].toInt())
    }
    return arrayOf(tokens, labels)
}

private fun newFolder(): File = File.createTempFile("bowline", "").also {
    it.delete()
    it.mkdir()
}

/** Trains 6 steps. Each training is stopped before the step `stopAt`, if it gets there. Returns the adapter. */
private fun tune(model: String, stopAt: Long): ByteArray {
    val folder = newFolder()
    var trainings = 0
    while (true) {
        val tuning = Tuning(folder, model)
        ++trainings
        val done = tuning.train(6) { step ->
            if (step == stopAt && trainings == 1) {
                tuning.stop()
            }
            batch(step)
        }
        if (done) {
            break
        }
        expect(File(folder, "tuning.checkpoint").exists(), "no checkpoint")
    }
    expect(trainings == (if (stopAt < 6) 2 else 1), "$trainings trainings")
    val adapter = File(folder, "mine.adapter").readBytes()
    folder.deleteRecursively()
    return adapter
}

fun main(arguments: Array<String>) {
    val model = arguments[0]
    expect(tune(model, 3).contentEquals(tune(model, 100)), "An interrupted training gives another adapter.")

    val file = RandomAccessFile(model, "r")
    val fd = FileDescriptor::class.java.getDeclaredField("fd").also { it.isAccessible = true }.getInt(file.fd)
    val predictor = Predictor(AssetFileDescriptor(ParcelFileDescriptor(fd), 0, -1), 16)
    file.close()
    predictor.use {
        val next = it.next("information abou".toByteArray()).toChar()
        expect(next == 't', "After `information abou` comes `$next`.")
    }
    println("The files of the guide run.")
}
