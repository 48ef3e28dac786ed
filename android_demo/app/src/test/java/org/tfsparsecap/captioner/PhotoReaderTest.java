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
  public void oddPicturesHaveThePixelsThatPythonReads() throws Exception {
    int pictures = 0;
    StringBuilder wrong = new StringBuilder();
    for (JSONObject odd : Fixtures.objects("oddities.json")) {
      String name = odd.getString("picture");
      int side = odd.getInt("side");
      Bitmap bitmap = PhotoReader.read(Fixtures.resolver(), Uri.fromFile(Fixtures.file(name)), side);
      byte[] expected = Fixtures.rgb(Fixtures.bitmap(odd.getString("expected")));
      int difference = Fixtures.difference(expected, Fixtures.scaled(bitmap, side));
      if (difference > odd.getInt("error")) {
        wrong.append(name).append(" differs by ").append(difference).append('\n');
      }
      assertEquals(name, Bitmap.Config.ARGB_8888, bitmap.getConfig());
      assertFalse(name, bitmap.hasAlpha());
      new Canvas(Bitmap.createBitmap(9, 9, Bitmap.Config.ARGB_8888)).drawBitmap(bitmap, 0, 0, null);
      pictures++;
    }
    assertEquals("", wrong.toString());
    assertTrue(pictures > 35);
  }

  @Test
  public void orientationTurnsWidthIntoHeight() throws Exception {
    for (int orientation = 1; orientation <= 8; orientation++) {
      Bitmap bitmap = read(Fixtures.bytes("turned_" + orientation + ".jpg"));
      assertEquals("orientation " + orientation, orientation < 5 ? 53 : 37, bitmap.getWidth());
      assertEquals("orientation " + orientation, orientation < 5 ? 37 : 53, bitmap.getHeight());
    }
  }

  @Test
  public void aBrokenExifBlockSaysNothingOfThePixels() throws Exception {
    byte[] photo = Fixtures.bytes("turned_6.jpg");
    int exif = new String(photo, StandardCharsets.ISO_8859_1).indexOf("Exif");
    byte[] broken = photo.clone();
    Arrays.fill(broken, exif + 6, exif + 20, (byte) 0xff);
    assertEquals(53, read(broken).getWidth());
  }

  @Test
  public void whatIsNoPictureIsSaid() throws Exception {
    assertEquals(Reason.EMPTY, reason(new byte[0]));
    assertEquals(Reason.NOT_A_PICTURE, reason("a text".getBytes(StandardCharsets.UTF_8)));
    byte[] film = Arrays.copyOf("\0\0\0 ftypisom\0\0\2\0isomiso2avc1mp41".getBytes(StandardCharsets.US_ASCII), 9999);
    assertEquals(Reason.NOT_A_PICTURE, reason(film));
    assertEquals(Reason.NOT_A_PICTURE, reason(Arrays.copyOf(Fixtures.bytes("colour.jpg"), 300)));
    assertEquals(Reason.NOT_A_PICTURE, reason(Arrays.copyOf(Fixtures.bytes("grey.png"), 12)));
  }

  @Test
  public void aPhotoThatIsNotThereIsGone() {
    assertEquals(Reason.GONE, reason(Uri.fromFile(new File("absent.jpg"))));
    assertEquals(Reason.GONE, reason(Provider.offer(uri -> {
      throw new FileNotFoundException("deleted");
    })));
    assertEquals(Reason.GONE, reason(Provider.offer(uri -> null)));
    assertEquals(Reason.GONE, reason(Provider.offer(uri -> {
      throw new IllegalStateException("another program's defect");
    })));
  }

  @Test
  public void aPhotoThatMayNotBeReadIsDenied() {
    PhotoException denied = failure(Provider.offer(uri -> {
      throw new SecurityException("not yours");
    }));
    assertEquals(Reason.DENIED, denied.reason());
    assertTrue(denied.getCause() instanceof SecurityException);
    assertEquals(Reason.DENIED, reason(Provider.offer(uri -> {
      FileNotFoundException error = new FileNotFoundException("open failed: EACCES (Permission denied)");
      error.initCause(new ErrnoException("open", OsConstants.EACCES));
      throw error;
    })));
  }

  @Test
  public void aPhotoThatIsDeletedWhileItLoadsIsGone() throws Exception {
    byte[] photo = large(1200, 900);
    for (int opened : new int[] {1, 2, 3}) {
      for (int bytes : new int[] {0, 10, photo.length / 2}) {
        int[] count = {0};
        Uri uri =
            Fixtures.offer(() -> ++count[0] < opened ? new ByteArrayInputStream(photo) : new Torn(photo, bytes));
        assertEquals("opening " + opened + " torn after " + bytes, Reason.GONE, reason(uri));
      }
    }
  }

  @Test
  public void thePictureOutlivesItsStreamsAndTheyAreClosed() throws Exception {
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
  public void tooLittleMemoryIsTriedWithLessAndThenSaid() throws Exception {
    byte[] photo = large(400, 300);
    Bitmap small = PhotoReader.read(Fixtures.resolver(), shortOfMemory(photo, 2), 4096);
    assertSize(100, 75, small);
    assertEquals(Reason.OUT_OF_MEMORY, reason(shortOfMemory(photo, 99)));
  }

  /** A photo that there is too little memory for, the first times that it is decoded. */
  private static Uri shortOfMemory(byte[] photo, int times) {
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
  public void jpegsAreReducedAsLongAsThereAreTwiceThePixels() throws Exception {
    byte[] photo = large(1200, 900);
    assertSize(1200, 900, PhotoReader.read(Fixtures.resolver(), Fixtures.offer(photo), 226));
    assertSize(600, 450, PhotoReader.read(Fixtures.resolver(), Fixtures.offer(photo), 225));
    assertSize(300, 225, PhotoReader.read(Fixtures.resolver(), Fixtures.offer(photo), 112));
    assertSize(150, 113, PhotoReader.read(Fixtures.resolver(), Fixtures.offer(photo), 56));
    assertSize(150, 113, PhotoReader.read(Fixtures.resolver(), Fixtures.offer(photo), 10));
    assertSize(1200, 900, PhotoReader.read(Fixtures.resolver(), Fixtures.offer(photo), 4096));
  }

  @Test
  public void aSmallPictureStaysAsItIs() throws Exception {
    Bitmap one = Bitmap.createBitmap(1, 1, Bitmap.Config.ARGB_8888);
    one.eraseColor(Color.rgb(10, 20, 30));
    Bitmap read = read(compressed(one, Bitmap.CompressFormat.PNG));
    assertSize(1, 1, read);
    assertEquals(Color.rgb(10, 20, 30), read.getPixel(0, 0));
  }

  private static void assertSize(int width, int height, Bitmap bitmap) {
    assertEquals(width + " x " + height, bitmap.getWidth() + " x " + bitmap.getHeight());
  }

  /** A stream that breaks. */
  private static final class Torn extends InputStream {
    private final byte[] content;
    private final int end;
    private int at;

    Torn(byte[] content, int end) {
      this.content = content;
      this.end = end;
    }

    @Override
    public int read() throws IOException {
      if (at == end) {
        throw new IOException("the card was pulled out");
      }
      return content[at++] & 255;
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
