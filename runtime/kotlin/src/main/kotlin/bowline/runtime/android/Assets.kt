package bowline.runtime.android

import android.content.res.AssetFileDescriptor
import bowline.runtime.Model

/**
 * Opens a model inside of the APK, without a copy: `assets.openFd("model.bowline").use { openModel(it) }`.
 *
 * The asset must be stored uncompressed, or openFd() throws. In build.gradle.kts of the app: `androidResources { noCompress +=
 * "bowline" }`. The descriptor may be closed afterwards.
 */
fun openModel(asset: AssetFileDescriptor, memoryMap: Boolean = true): Model =
    Model.openDescriptor(asset.parcelFileDescriptor.fd, asset.startOffset, maxOf(asset.length, 0L), memoryMap)
