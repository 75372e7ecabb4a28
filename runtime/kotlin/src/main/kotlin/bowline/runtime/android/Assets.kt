package bowline.runtime.android

import android.content.res.AssetFileDescriptor
import bowline.runtime.Model

/**
 Opens a model that is an asset of the app, without copying it: `assets.openFd("model.bowline").use { openModel(it) }`.
 *
 * The APK must store the asset uncompressed, or openFd() throws. To get this, write
 * `androidResources { noCompress += "bowline" }` in the block `android` of build.gradle.kts. You may close [asset] after the
 * call.
 */
fun openModel(asset: AssetFileDescriptor, memoryMap: Boolean = true): Model =
    Model.openDescriptor(asset.parcelFileDescriptor.fd, asset.startOffset, maxOf(asset.length, 0L), memoryMap)
