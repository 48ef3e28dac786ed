package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotEquals;

import java.io.File;
import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.xml.parsers.DocumentBuilderFactory;
import javax.xml.parsers.ParserConfigurationException;
import org.junit.Test;
import org.w3c.dom.Element;
import org.w3c.dom.NodeList;
import org.xml.sax.SAXException;

/** Every string has its translation, with the same places to fill. */
public final class TranslationsTest {
  private static final Pattern PLACE = Pattern.compile("%[0-9]+\\$[sd]");

  @Test
  public void germanIsComplete() throws Exception {
    Map<String, String> english = strings("values");
    Map<String, String> german = strings("values-de");
    assertEquals(english.keySet(), german.keySet());
    for (String name : english.keySet()) {
      assertEquals(name, places(english.get(name)), places(german.get(name)));
      assertFalse(name, german.get(name).trim().isEmpty());
    }
    assertNotEquals(english.get("welcome"), german.get("welcome"));
  }

  @Test
  public void everyProblemIsASentence() throws Exception {
    for (String folder : new String[] {"values", "values-de"}) {
      Map<String, String> strings = strings(folder);
      for (Problem problem : Problem.values()) {
        String name = "problem_" + problem.name().toLowerCase(java.util.Locale.ROOT);
        String text = strings.get(name);
        assertEquals(name + ": " + text, '.', text.charAt(text.length() - 1));
      }
    }
  }

  private static TreeSet<String> places(String text) {
    TreeSet<String> places = new TreeSet<>();
    Matcher matcher = PLACE.matcher(text);
    while (matcher.find()) {
      places.add(matcher.group());
    }
    return places;
  }

  private static Map<String, String> strings(String folder)
      throws IOException, ParserConfigurationException, SAXException {
    File file = new File("src/main/res/" + folder + "/strings.xml");
    NodeList all =
        DocumentBuilderFactory.newInstance()
            .newDocumentBuilder()
            .parse(file)
            .getElementsByTagName("string");
    Map<String, String> strings = new TreeMap<>();
    for (int i = 0; i < all.getLength(); i++) {
      Element string = (Element) all.item(i);
      strings.put(string.getAttribute("name"), string.getTextContent());
    }
    return strings;
  }
}
