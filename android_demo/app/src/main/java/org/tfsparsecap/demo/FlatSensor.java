package org.tfsparsecap.demo;

import android.content.Context;
import android.hardware.Sensor;
import android.hardware.SensorEvent;
import android.hardware.SensorEventListener;
import android.hardware.SensorManager;
import java.util.function.Consumer;

/**
 * Tells whether the phone lies flat, on its front or its back. A phone that is held flat above
 * something trembles, so it does not lie.
 */
final class FlatSensor implements SensorEventListener {
  /** The part of gravity on the screen's axis: 14 degrees from flat. */
  private static final float FLAT = 0.97f;
  /** Between two measurements, in m/s². */
  private static final float TREMBLING = 0.2f;

  private static final long LYING_NANOSECONDS = 1_500_000_000L;

  private final SensorManager manager;
  private final Consumer<Boolean> listener;
  private final float[] last = new float[3];
  private boolean flat;
  /** When the phone was last seen moving or upright; -1 before the first measurement. */
  private long moved = -1;

  /**
   * @param listener receives whether the phone lies flat after the first measurement of each start, so
   *     that it forgets what an earlier sensor told it, and when that changes.
   */
  FlatSensor(Context context, Consumer<Boolean> listener) {
    manager = context.getSystemService(SensorManager.class);
    this.listener = listener;
  }

  /** Starts to measure; a phone without a sensor never lies flat. */
  void start() {
    moved = -1;
    Sensor sensor = manager.getDefaultSensor(Sensor.TYPE_ACCELEROMETER);
    if (sensor != null) {
      manager.registerListener(this, sensor, SensorManager.SENSOR_DELAY_NORMAL);
    }
  }

  void stop() {
    manager.unregisterListener(this);
  }

  @Override
  public void onSensorChanged(SensorEvent event) {
    add(event.values, event.timestamp);
  }

  /** @param values acceleration on the three axes, in m/s². */
  void add(float[] values, long nanoseconds) {
    double length = 0;
    float change = 0;
    for (int axis = 0; axis < last.length; axis++) {
      length += values[axis] * values[axis];
      change = Math.max(change, Math.abs(values[axis] - last[axis]));
      last[axis] = values[axis];
    }
    boolean isFirst = moved < 0;
    boolean horizontal = Math.abs(values[2]) > FLAT * Math.sqrt(length);
    if (isFirst || !horizontal || change > TREMBLING) {
      moved = nanoseconds;
    }
    boolean now = nanoseconds - moved >= LYING_NANOSECONDS;
    if (isFirst || now != flat) {
      flat = now;
      listener.accept(now);
    }
  }

  @Override
  public void onAccuracyChanged(Sensor sensor, int accuracy) {}
}
