/** Keeps the files of the page, so that it opens without network after the first visit. */

// build.sh writes both.
const VERSION = "";
const FILES = [];

// Caches belong to the origin, which may have several copies of the page.
const PREFIX = `tfsparsecap-${self.registration.scope}-`;
const CACHE = PREFIX + VERSION;

self.addEventListener("install", (event) => {
  // The browser's own cache may still have files of the last version: it asks the server whether they are current.
  const requests = FILES.map((file) => new Request(file, { cache: "no-cache" }));
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(requests)));
});

// A new version waits until no page uses the old one, and then removes its files.
self.addEventListener("activate", (event) => {
  const isOld = (name) => name.startsWith(PREFIX) && name !== CACHE;
  const removed = caches
    .keys()
    .then((names) => Promise.all(names.filter(isOld).map((name) => caches.delete(name))));
  event.waitUntil(removed.then(() => self.clients.claim()));
});

self.addEventListener("fetch", (event) => {
  const found = caches.open(CACHE).then((cache) => cache.match(event.request, { ignoreSearch: true }));
  event.respondWith(found.then((response) => response ?? fetch(event.request)));
});
