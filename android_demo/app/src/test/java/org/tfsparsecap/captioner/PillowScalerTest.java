package org.tfsparsecap.captioner;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import android.graphics.Bitmap;
import android.graphics.Color;
import java.nio.ByteBuffer;
import org.json.JSONObject;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;

@RunWith(RobolectricTestRunner.class)
public class PillowScalerTest {
  @Test
  public void outputIsIdenticalToPillow() throws Exception {
    int images = 0;
    for (JSONObject scaling : Fixtures.objects("scalings.json")) {
      String name = scaling.getString("image");
      byte[] scaled = Fixtures.scaled(Fixtures.bitmap(name), scaling.getInt("side"));
      byte[] expected = Fixtures.rgb(Fixtures.bitmap(scaling.getString("expected")));
      assertArrayEquals(name, expected, scaled);
      images++;
    }
    assertEquals(12, images);
  }

  @Test
  public void differsFromAndroidsScaling() throws Exception {
    Bitmap noise = Fixtures.bitmap("scaling_97x61.png");
    byte[] ours = Fixtures.scaled(noise, 48);
    byte[] androids = Fixtures.rgb(Bitmap.createScaledBitmap(noise, 48, 48, true));
    assertTrue("the test image does not distinguish the scalings", Fixtures.difference(ours, androids) > 20);
  }

  @Test
  public void readsAllBitmapConfigs() throws Exception {
    Bitmap noise = Fixtures.bitmap("scaling_37x53.png");
    byte[] expected = Fixtures.scaled(noise, 24);
    for (Bitmap.Config config : new Bitmap.Config[] {Bitmap.Config.RGB_565, Bitmap.Config.RGBA_F16}) {
      byte[] scaled = Fixtures.scaled(noise.copy(config, false), 24);
      assertTrue(config.name(), Fixtures.difference(expected, scaled) <= (config == Bitmap.Config.RGB_565 ? 8 : 1));
    }
  }

  @Test
  public void blendsTransparentPixelsWithWhite() {
    Bitmap clear = Bitmap.createBitmap(5, 5, Bitmap.Config.ARGB_8888);
    clear.eraseColor(Color.argb(51, 255, 0, 0));
    byte[] scaled = Fixtures.scaled(clear, 2);
    assertEquals(255, scaled[0] & 255);
    assertEquals(204, scaled[1] & 255);
    assertEquals(204, scaled[2] & 255);
  }

  @Test
  public void writesAtTheBufferPosition() throws Exception {
    Bitmap noise = Fixtures.bitmap("scaling_37x53.png");
    ByteBuffer buffer = ByteBuffer.allocateDirect(7 + 3 * 24 * 24);
    buffer.position(7);
    PillowScaler.scale(noise, 24, buffer);
    assertEquals(buffer.limit(), buffer.position());
    byte[] written = new byte[3 * 24 * 24];
    buffer.position(7);
    buffer.get(written);
    assertArrayEquals(Fixtures.scaled(noise, 24), written);
  }

  @Test
  public void rejectsRecycledBitmap() {
    Bitmap bitmap = Bitmap.createBitmap(5, 5, Bitmap.Config.ARGB_8888);
    bitmap.recycle();
    assertThrows(IllegalArgumentException.class, () -> Fixtures.scaled(bitmap, 2));
  }
}
