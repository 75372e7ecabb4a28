package android.content.res;

import android.os.ParcelFileDescriptor;

/** What the Kotlin package uses of the class of Android with this name. */
public final class AssetFileDescriptor {
  private final ParcelFileDescriptor descriptor;
  private final long startOffset;
  private final long length;

  public AssetFileDescriptor(ParcelFileDescriptor descriptor, long startOffset, long length) {
    this.descriptor = descriptor;
    this.startOffset = startOffset;
    this.length = length;
  }

  public ParcelFileDescriptor getParcelFileDescriptor() {
    return descriptor;
  }

  public long getStartOffset() {
    return startOffset;
  }

  public long getLength() {
    return length;
  }
}
