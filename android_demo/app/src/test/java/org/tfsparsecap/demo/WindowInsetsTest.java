package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;

import android.app.Activity;
import android.content.Intent;
import android.graphics.Insets;
import android.view.View;
import android.view.WindowInsets;
import org.junit.Test;

/** No content lies under the system bars or the display cutout. */
public final class WindowInsetsTest extends ScreenTest {
  @Test
  public void allScreensArePaddedForSystemBars() {
    checkEdges(open().get());
    checkEdges(openModels(null).get());
    checkEdges(open(LiveActivity.class, new Intent()).get());
    checkEdges(open(AboutActivity.class, new Intent()).get());
  }

  private static void checkEdges(Activity screen) {
    WindowInsets insets =
        new WindowInsets.Builder()
            .setInsets(WindowInsets.Type.statusBars(), Insets.of(0, 50, 0, 0))
            .setInsets(WindowInsets.Type.navigationBars(), Insets.of(0, 0, 0, 90))
            .setInsets(WindowInsets.Type.displayCutout(), Insets.of(70, 0, 0, 0))
            .build();
    View root = screen.findViewById(R.id.root);
    root.dispatchApplyWindowInsets(insets);
    assertEquals(50, root.getPaddingTop());
    assertEquals(90, root.getPaddingBottom());
    assertEquals(70, root.getPaddingLeft());
    assertEquals(0, root.getPaddingRight());
  }
}
