/** JPEG by arithmetic coding (ITU-T T.81, annex D), which no encoder here writes. */
import test from 'ava';
import { decodeBackground } from '../../../src/picture/worker/background.ts';
import { decode } from '../pictures.ts';

/** By jpegtran of libjpeg-turbo, 16 x 16 pixels: red is 16 x, green 16 y, blue 128. */
const SEQUENTIAL =
  '/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAMCAgMCAgMDAwMEAwMEBQgFBQQEBQoHBwYIDAoMDAsKCwsNDhIQDQ4R' +
  'DgsLEBYQERMUFRUVDA8XGBYUGBIUFRT/2wBDAQMEBAUEBQkFBQkUDQsNFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU' +
  'FBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBT/yQARCAAQABADAREAAhEBAxEB/8wACgAQEAUBEBEF/9oADAMBAAIR' +
  'AxEAPwD/AN4Gp7rfXMXHJ45bq5o/RoVvdEmQotEzNM12Rcaw0BxYZJ6YJa0m1QOGzWgpLraFYwgqkr3wYw0QT4qs' +
  'tcR5INeRQv/Z';
const PROGRESSIVE =
  '/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAMCAgMCAgMDAwMEAwMEBQgFBQQEBQoHBwYIDAoMDAsKCwsNDhIQDQ4R' +
  'DgsLEBYQERMUFRUVDA8XGBYUGBIUFRT/2wBDAQMEBAUEBQkFBQkUDQsNFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU' +
  'FBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBT/ygARCAAQABADAREAAhEBAxEB/8wABgAQARD/2gAMAwEAAhADEAAA' +
  'Af8Au/iQFynLgP0+3BJkLL5OVCZP/8wABBAF/9oACAEBAAEFAhWbbkea8sGl4v/MAAQRBf/aAAgBAwEBPwEWIuyq' +
  'g4v+xuKOzduA/8wABBEF/9oACAECAQE/ATVJB7s2vl64/8wABBAF/9oACAEBAAY/Al4U/8wABBAF/9oACAEBAAE/' +
  'IdeBDIj/2gAMAwEAAgADAAAAEF5Q/8wABBEF/9oACAEDAQE/EB8Uz0D/zAAEEQX/2gAIAQIBAT8QTrNisP/MAAQQ' +
  'Bf/aAAgBAQABPxCos/L49hCA/9k=';
/** What quality 90 may lose of a slope. */
const NEAR = 12;

const asIs = { declared: undefined, onOpened: () => undefined };

for (const [kind, text] of Object.entries({ SEQUENTIAL, PROGRESSIVE })) {
  const file = Buffer.from(text, 'base64');

  test(`${kind.toLowerCase()}: an image and a background as another JPEG`, async t => {
    const { rgba, width, height } = await decode(file);
    t.deepEqual([width, height], [16, 16]);
    for (const [at, pixel] of rgba.entries()) {
      const expected = [16 * (at % 16), 16 * Math.floor(at / 16), 128, 255];
      for (const [channel, value] of expected.entries()) {
        const found = (pixel >>> (8 * channel)) & 255;
        t.true(Math.abs(found - value) <= NEAR, `pixel ${at}: ${found} for ${value}`);
      }
    }
    t.deepEqual((await decodeBackground(file, asIs)).rgba, rgba);
  });

  test(`${kind.toLowerCase()}: one that is cut short is refused`, async t => {
    for (let bytes = 20; bytes < file.length - 2; bytes += 20) {
      const cut = file.subarray(0, bytes);
      await t.throwsAsync(decode(cut), { code: 'PROCESSING_FAILED' }, `${bytes} bytes`);
    }
  });
}
