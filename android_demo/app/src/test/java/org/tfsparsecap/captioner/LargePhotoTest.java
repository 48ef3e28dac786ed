package org.tfsparsecap.captioner;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import android.graphics.Bitmap;
import android.net.Uri;
import com.sun.management.ThreadMXBean;
import java.awt.image.BufferedImage;
import java.awt.image.DataBufferByte;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import javax.imageio.ImageIO;
import org.junit.AfterClass;
import org.junit.BeforeClass;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;

/**
 * Memory for a photo of 48 megapixels: {@code mvn -f android_demo/pom.xml test
 * -Dtest=LargePhotoTest}.
 */
@RunWith(RobolectricTestRunner.class)
public class LargePhotoTest {
  /** The size that the app displays; captioning needs half of it. */
  private static final int SIDE = 448;
  private static final int ROTATE_90 = 6;
  private static final int MAX_BITMAP = 20 << 20;
  private static final long MAX_HEAP = 4 << 20;

  private static File upright;
  private static File turned;

  @BeforeClass
  public static void takePhotos() throws IOException {
    BufferedImage image = new BufferedImage(8000, 6000, BufferedImage.TYPE_3BYTE_BGR);
    byte[] pixels = ((DataBufferByte) image.getRaster().getDataBuffer()).getData(); // setRGB takes seconds
    int pos = 0;
    for (int y = 0; y < image.getHeight(); y++) {
      for (int x = 0; x < image.getWidth(); x++) {
        pixels[pos++] = (byte) ((x ^ y) >> 6);
        pixels[pos++] = (byte) (y >> 5);
        pixels[pos++] = (byte) (x >> 5);
      }
    }
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    assertTrue(ImageIO.write(image, "jpg", content));
    upright = write(content.toByteArray());
    turned = write(withOrientation(content.toByteArray(), ROTATE_90));
  }

  @AfterClass
  public static void deletePhotos() {
    assertTrue(upright.delete() & turned.delete());
  }

  @Test
  public void readingNeedsLittleMemory() throws Exception {
    measure("48 MP upright", upright, 2000, 1500);
    measure("48 MP turned", turned, 1500, 2000);
  }

  private static void measure(String what, File photo, int width, int height) throws PhotoException {
    Uri uri = Uri.fromFile(photo);
    PhotoReader.read(Fixtures.resolver(), uri, SIDE).recycle(); // Loads classes.
    ByteBuffer pixels = ByteBuffer.allocateDirect(3 * SIDE * SIDE);
    long before = allocated();
    Bitmap bitmap = PhotoReader.read(Fixtures.resolver(), uri, SIDE);
    PillowScaler.scale(bitmap, SIDE, pixels);
    // All allocations, an upper bound of the peak.
    long heap = allocated() - before;
    System.out.printf(
        "MEASURED %s: Java heap at most %d KB, bitmap %d KB%n",
        what, heap >> 10, bitmap.getAllocationByteCount() >> 10);
    assertEquals(width, bitmap.getWidth());
    assertEquals(height, bitmap.getHeight());
    assertTrue("bitmap", bitmap.getAllocationByteCount() <= MAX_BITMAP);
    assertTrue("heap " + heap, heap <= MAX_HEAP);
  }

  /** Bytes that this thread has allocated on the Java heap so far. */
  private static long allocated() {
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    return threads.getThreadAllocatedBytes(Thread.currentThread().getId());
  }

  /** Inserts an EXIF block with one entry into a JPEG. */
  private static byte[] withOrientation(byte[] jpeg, int orientation) {
    ByteBuffer result = ByteBuffer.allocate(jpeg.length + 36);
    result.put(jpeg, 0, 2).putShort((short) 0xffe1).putShort((short) 34);
    result.put("Exif\0\0MM\0*".getBytes(StandardCharsets.US_ASCII)).putInt(8);
    result.putShort((short) 1).putShort((short) 0x0112).putShort((short) 3).putInt(1);
    result.putShort((short) orientation).putShort((short) 0).putInt(0);
    return result.put(jpeg, 2, jpeg.length - 2).array();
  }

  private static File write(byte[] content) throws IOException {
    return Files.write(Files.createTempFile("photo", ".jpg"), content).toFile();
  }
}
