package org.tfsparsecap.captioner;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import android.graphics.Bitmap;
import android.graphics.Canvas;
import android.graphics.Color;
import android.net.Uri;
import android.system.ErrnoException;
import android.system.OsConstants;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.json.JSONObject;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.tfsparsecap.captioner.PhotoException.Reason;

@RunWith(RobolectricTestRunner.class)
public class PhotoReaderTest {
  @Test
  public void pixelsOfAllFormatsEqualPythons() throws Exception {
    int images = 0;
    StringBuilder wrong = new StringBuilder();
    for (JSONObject testCase : Fixtures.objects("formats.json")) {
      String name = testCase.getString("image");
      int side = testCase.getInt("side");
      Bitmap bitmap = PhotoReader.read(Fixtures.resolver(), Uri.fromFile(Fixtures.file(name)), side);
      byte[] expected = Fixtures.rgb(Fixtures.bitmap(testCase.getString("expected")));
      int difference = Fixtures.difference(expected, Fixtures.scaled(bitmap, side));
      if (difference > testCase.getInt("error")) {
        wrong.append(name).append(" differs by ").append(difference).append('\n');
      }
      assertEquals(name, Bitmap.Config.ARGB_8888, bitmap.getConfig());
      assertFalse(name, bitmap.hasAlpha());
      new Canvas(Bitmap.createBitmap(9, 9, Bitmap.Config.ARGB_8888)).drawBitmap(bitmap, 0, 0, null);
      images++;
    }
    assertEquals("", wrong.toString());
    assertTrue(images > 35);
  }

  @Test
  public void appliesExifOrientation() throws Exception {
    for (int orientation = 1; orientation <= 8; orientation++) {
      Bitmap bitmap = read(Fixtures.bytes("turned_" + orientation + ".jpg"));
      assertEquals("orientation " + orientation, orientation < 5 ? 53 : 37, bitmap.getWidth());
      assertEquals("orientation " + orientation, orientation < 5 ? 37 : 53, bitmap.getHeight());
    }
  }

  @Test
  public void ignoresMalformedExif() throws Exception {
    byte[] photo = Fixtures.bytes("turned_6.jpg");
    int exif = new String(photo, StandardCharsets.ISO_8859_1).indexOf("Exif");
    byte[] broken = photo.clone();
    Arrays.fill(broken, exif + 6, exif + 20, (byte) 0xff);
    assertEquals(53, read(broken).getWidth());
  }

  @Test
  public void rejectsFilesThatAreNotImages() throws Exception {
    assertEquals(Reason.EMPTY, reason(new byte[0]));
    assertEquals(Reason.NOT_AN_IMAGE, reason("a text".getBytes(StandardCharsets.UTF_8)));
    byte[] video = Arrays.copyOf("\0\0\0 ftypisom\0\0\2\0isomiso2avc1mp41".getBytes(StandardCharsets.US_ASCII), 9999);
    assertEquals(Reason.NOT_AN_IMAGE, reason(video));
    assertEquals(Reason.NOT_AN_IMAGE, reason(Arrays.copyOf(Fixtures.bytes("colour.jpg"), 300)));
    assertEquals(Reason.NOT_AN_IMAGE, reason(Arrays.copyOf(Fixtures.bytes("grey.png"), 12)));
  }

  @Test
  public void reportsMissingPhotos() {
    assertEquals(Reason.GONE, reason(Uri.fromFile(new File("absent.jpg"))));
    assertEquals(Reason.GONE, reason(TestProvider.offer(uri -> {
      throw new FileNotFoundException("deleted");
    })));
    assertEquals(Reason.GONE, reason(TestProvider.offer(uri -> null)));
    assertEquals(Reason.GONE, reason(TestProvider.offer(uri -> {
      throw new IllegalStateException("a bug of another app");
    })));
  }

  @Test
  public void reportsDeniedAccess() {
    PhotoException isAccessDenied = failure(TestProvider.offer(uri -> {
      throw new SecurityException("access denied");
    }));
    assertEquals(Reason.DENIED, isAccessDenied.reason());
    assertTrue(isAccessDenied.getCause() instanceof SecurityException);
    assertEquals(Reason.DENIED, reason(TestProvider.offer(uri -> {
      FileNotFoundException error = new FileNotFoundException("open failed: EACCES (Permission denied)");
      error.initCause(new ErrnoException("open", OsConstants.EACCES));
      throw error;
    })));
  }

  @Test
  public void reportsPhotosDeletedWhileReading() throws Exception {
    byte[] photo = large(1200, 900);
    for (int opened : new int[] {1, 2, 3}) {
      for (int bytes : new int[] {0, 10, photo.length / 2}) {
        int[] count = {0};
        Uri uri =
            Fixtures.offer(() -> ++count[0] < opened ? new ByteArrayInputStream(photo) : new FailingStream(photo, bytes));
        assertEquals("opening " + opened + " failed after " + bytes, Reason.GONE, reason(uri));
      }
    }
  }

  @Test
  public void closesAllStreams() throws Exception {
    int[] open = {0, 0};
    byte[] photo = Fixtures.bytes("colour.jpg");
    Uri uri =
        Fixtures.offer(
            () -> {
              open[0]++;
              return new ByteArrayInputStream(photo) {
                @Override
                public void close() {
                  open[1]++;
                }
              };
            });
    assertEquals(53, PhotoReader.read(Fixtures.resolver(), uri, 16).getWidth());
    assertTrue(open[0] > 0);
    assertTrue(open[1] >= open[0]);
  }

  @Test
  public void retriesWithSmallerSizeWhenOutOfMemory() throws Exception {
    byte[] photo = large(400, 300);
    Bitmap small = PhotoReader.read(Fixtures.resolver(), outOfMemoryPhoto(photo, 2), 4096);
    assertSize(100, 75, small);
    assertEquals(Reason.OUT_OF_MEMORY, reason(outOfMemoryPhoto(photo, 99)));
  }

  /** A photo for which the first decoding attempts run out of memory. */
  private static Uri outOfMemoryPhoto(byte[] photo, int times) {
    int[] opened = {0};
    int beforeDecoding = 2;
    return Fixtures.offer(
        () -> {
          opened[0]++;
          if (opened[0] > beforeDecoding && opened[0] <= beforeDecoding + times) {
            throw new OutOfMemoryError("test");
          }
          return new ByteArrayInputStream(photo);
        });
  }

  @Test
  public void reducesJpegsToTwiceTheRequestedSide() throws Exception {
    byte[] photo = large(1200, 900);
    assertSize(1200, 900, PhotoReader.read(Fixtures.resolver(), Fixtures.offer(photo), 226));
    assertSize(600, 450, PhotoReader.read(Fixtures.resolver(), Fixtures.offer(photo), 225));
    assertSize(300, 225, PhotoReader.read(Fixtures.resolver(), Fixtures.offer(photo), 112));
    assertSize(150, 113, PhotoReader.read(Fixtures.resolver(), Fixtures.offer(photo), 56));
    assertSize(150, 113, PhotoReader.read(Fixtures.resolver(), Fixtures.offer(photo), 10));
    assertSize(1200, 900, PhotoReader.read(Fixtures.resolver(), Fixtures.offer(photo), 4096));
  }

  @Test
  public void keepsSmallImages() throws Exception {
    Bitmap one = Bitmap.createBitmap(1, 1, Bitmap.Config.ARGB_8888);
    one.eraseColor(Color.rgb(10, 20, 30));
    Bitmap read = read(compressed(one, Bitmap.CompressFormat.PNG));
    assertSize(1, 1, read);
    assertEquals(Color.rgb(10, 20, 30), read.getPixel(0, 0));
  }

  private static void assertSize(int width, int height, Bitmap bitmap) {
    assertEquals(width + " x " + height, bitmap.getWidth() + " x " + bitmap.getHeight());
  }

  /** A stream that fails after some bytes. */
  private static final class FailingStream extends InputStream {
    private final byte[] content;
    private final int end;
    private int pos;

    FailingStream(byte[] content, int end) {
      this.content = content;
      this.end = end;
    }

    @Override
    public int read() throws IOException {
      if (pos == end) {
        throw new IOException("the stream failed");
      }
      return content[pos++] & 255;
    }
  }

  private static byte[] large(int width, int height) {
    Bitmap bitmap = Bitmap.createBitmap(width, height, Bitmap.Config.ARGB_8888);
    for (int i = 0; i < 5000; i++) {
      bitmap.setPixel(i * 37 % width, i * 91 % height, 0xff000000 | i * 0x10305);
    }
    return compressed(bitmap, Bitmap.CompressFormat.JPEG);
  }

  private static byte[] compressed(Bitmap bitmap, Bitmap.CompressFormat format) {
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    assertTrue(bitmap.compress(format, 95, content));
    return content.toByteArray();
  }

  private static Bitmap read(byte[] photo) throws PhotoException {
    return PhotoReader.read(Fixtures.resolver(), Fixtures.offer(photo), 16);
  }

  private static Reason reason(byte[] photo) {
    return reason(Fixtures.offer(photo));
  }

  private static Reason reason(Uri uri) {
    return failure(uri).reason();
  }

  private static PhotoException failure(Uri uri) {
    PhotoException failure =
        assertThrows(PhotoException.class, () -> PhotoReader.read(Fixtures.resolver(), uri, 16));
    assertSame(PhotoException.class, failure.getClass());
    return failure;
  }
}
