import assert from 'node:assert/strict';
import ava from 'ava';
import { riff } from '../../test/picture/damage/forms.ts';
import {
  asSharp,
  decode,
  findJpegMarker,
  jpegDataStart,
  type Pixels,
  paint,
  decodeIfWhole as read,
  writeJpegWithRestarts,
} from '../../test/pictures.ts';
import { decodeBackground } from '../worker/decode-background.ts';

const test = ava.serial;

const END = Buffer.from([0xff, 0xd9]);
const WIDTH = 104;
const HEIGHT = 72;

/** Detailed everywhere, so that every part of the file has data. */
const BUSY: Pixels = paint(WIDTH, HEIGHT, 3, (x, y) => [
  (x * y) % 256,
  (x * 7 + y * 13) % 256,
  (x ^ y) & 255,
]);

/** Whole blocks of 4:2:0. */
const LARGER: Pixels = paint(112, 112, 3, (x, y) => [(x * y) % 256, (x * 7 + y * 13) % 256, x ^ y]);

/** Removes the tables, as in frames of motion JPEG. */
function withoutTables(file: Buffer): Buffer {
  const parts = [file.subarray(0, 2)];
  for (let at = 2; ; ) {
    const end = at + 2 + file.readUInt16BE(at + 2);
    if (file[at + 1] === 0xda) return Buffer.concat([...parts, file.subarray(at)]);
    if (file[at + 1] !== 0xc4) parts.push(file.subarray(at, end));
    at = end;
  }
}

const FILES = new Map<string, Buffer>();
const RESTARTS = new Map<string, Buffer>();

test.before(async () => {
  const busy = () => asSharp(BUSY);
  const full = { quality: 80, chromaSubsampling: '4:4:4' } as const;
  FILES.set('4:2:0', await busy().jpeg({ quality: 80 }).toBuffer());
  FILES.set('4:4:4', await busy().jpeg(full).toBuffer());
  FILES.set('grey', await busy().toColourspace('b-w').jpeg().toBuffer());
  FILES.set('progressive', await busy().jpeg({ progressive: true }).toBuffer());
  const standard = await busy()
    .jpeg({ ...full, optimizeCoding: false })
    .toBuffer();
  FILES.set('without tables', withoutTables(standard));
  FILES.set('restarts', await writeJpegWithRestarts(BUSY));
  RESTARTS.set('grey', await writeJpegWithRestarts(BUSY));
  RESTARTS.set('4:2:0', await writeJpegWithRestarts(LARGER, 'srgb'));
});

function insertFirst(file: Buffer, segment: string): Buffer {
  return Buffer.concat([file.subarray(0, 2), Buffer.from(segment, 'hex'), file.subarray(2)]);
}

/** libjpeg warns of these, but reads them right. */
const ODDITIES: Readonly<Record<string, (file: Buffer) => Buffer>> = {
  'a spectral selection of 0 to 0': file => {
    const odd = Buffer.from(file);
    const end = jpegDataStart(odd);
    assert.deepEqual([...odd.subarray(end - 3, end)], [0, 63, 0]);
    odd[end - 2] = 0;
    return odd;
  },
  'stray bytes between segments': file => {
    const at = findJpegMarker(file, 0xc0);
    return Buffer.concat([file.subarray(0, at), Buffer.from([0, 7, 0]), file.subarray(at)]);
  },
  "an unknown code of Adobe's": file => insertFirst(file, 'ffee000e41646f626500640000000009'),
  'an unknown revision of JFIF': file => insertFirst(file, 'ffe000104a46494600070200000100010000'),
};

test('damage › what libjpeg warns of and reads correctly is no reason to refuse', async t => {
  for (const kind of ['4:2:0', '4:4:4']) {
    const file = FILES.get(kind) as Buffer;
    const whole = await read(file);
    assert.ok(whole);
    for (const [name, spoil] of Object.entries(ODDITIES)) {
      t.deepEqual(await read(spoil(file)), whole, `${kind} with ${name}`);
    }
  }
});

test('damage › a harmless warning does not hide damage behind it', async t => {
  for (const kind of ['4:2:0', '4:4:4']) {
    for (const [name, spoil] of Object.entries(ODDITIES)) {
      const odd = spoil(FILES.get(kind) as Buffer);
      const start = jpegDataStart(odd);
      const length = odd.length - start;
      const at = (share: number) => start + Math.floor(length * share);
      const damaged = {
        cut: odd.subarray(0, at(0.5)),
        'cut, with an end': Buffer.concat([odd.subarray(0, at(0.5)), END]),
        'its middle lost': Buffer.concat([odd.subarray(0, at(0.4)), odd.subarray(at(0.6))]),
        'its end lost': Buffer.concat([odd.subarray(0, at(0.97)), END]),
      };
      for (const [damage, file] of Object.entries(damaged)) {
        t.is(await read(file), undefined, `${kind} with ${name}, ${damage}`);
      }
    }
  }
});

test('damage › a JPEG that lacks its end marker alone is read', async t => {
  for (const [kind, file] of FILES) {
    const whole = await read(file);
    assert.ok(whole, kind);
    t.deepEqual(await read(file.subarray(0, file.length - END.length)), whole, kind);
  }
});

test('damage › a cut JPEG, with an end marker behind the cut or without, never lacks a pixel', async t => {
  for (const [kind, file] of FILES) {
    const whole = await read(file);
    const start = jpegDataStart(file);
    // Through the file, and every one near its end, for the last rows.
    const cuts = Array.from({ length: 25 }, (_, i) => Math.floor((file.length * i) / 25));
    for (let at = file.length - 30; at < file.length; at++) cuts.push(at);
    let refused = 0;
    for (const at of cuts) {
      const cut = file.subarray(0, at);
      const files = at > start && kind !== 'progressive' ? [cut, Buffer.concat([cut, END])] : [cut];
      for (const damaged of files) {
        if (at < 12) continue;
        const pixels = await read(damaged);
        if (pixels === undefined) refused++;
        else t.deepEqual(pixels, whole, `${kind} cut at ${at} of ${file.length}`);
      }
    }
    t.true(refused > cuts.length * 0.8, `${kind}: ${refused} refused`);
  }
});

test('damage › codes that end too early are damage, in the last rows too', async t => {
  // A row of blocks is lost, without rows that are decoded ahead.
  const file = FILES.get('restarts') as Buffer;
  const last = file.lastIndexOf(Buffer.from([0xff, 0xd7]));
  t.true(last > 0);
  const lost = Buffer.concat([file.subarray(0, last), END]);
  t.is(await read(lost), undefined, 'the last row');
  const skipped = Buffer.from(file);
  skipped[last + 1] = 0xd3;
  t.is(await read(skipped), undefined, 'a restart marker out of turn');
});

test("damage › bytes behind the picture's last block are no damage", async t => {
  for (const kind of ['4:2:0', '4:4:4', 'grey', 'restarts']) {
    const file = FILES.get(kind) as Buffer;
    const whole = await read(file);
    const body = file.subarray(0, file.length - END.length);
    const padded = Buffer.concat([body, Buffer.from([1, 2, 3, 0, 0xff, 0xd3, 9]), END]);
    t.deepEqual(await read(padded), whole, kind);
  }
  const file = FILES.get('progressive') as Buffer;
  const body = file.subarray(0, file.length - END.length);
  const padded = Buffer.concat([body, Buffer.alloc(16), END]);
  t.deepEqual(await read(padded), await read(file), 'progressive');
});

/** @param of bytes before each restart marker, by its number */
function insertBefore(file: Buffer, of: (marker: number) => readonly number[]): Buffer {
  const parts: Buffer[] = [];
  let at = jpegDataStart(file);
  parts.push(file.subarray(0, at));
  for (let number = 0; ; number++) {
    const marker = file.indexOf(Buffer.from([0xff, 0xd0 + (number & 7)]), at);
    if (marker < 0) return Buffer.concat([...parts, file.subarray(at)]);
    parts.push(file.subarray(at, marker), Buffer.from(of(number)));
    parts.push(file.subarray(marker, marker + 2));
    at = marker + 2;
  }
}

const zeros = (count: number) => Array<number>(count).fill(0);

test('stray bytes › before restart markers every pixel is read, and the file is said to be mended', async t => {
  for (const [kind, file] of RESTARTS) {
    const whole = await decode(file);
    t.is(whole.mended, undefined);
    const odd: Record<string, (marker: number) => readonly number[]> = {
      'a zero before each': () => [0],
      'a zero before one': marker => (marker === 2 ? [0] : []),
      'zeros up to an even length': marker => zeros(marker % 4),
      'a sector of zeros': marker => (marker === 1 ? zeros(512) : []),
      'zeros and fill bytes': () => [0, 0, 0xff],
      'other bytes before each': marker => [marker * 31, 7, 0x55],
      'a stuffed byte before each': () => [0xff, 0],
    };
    for (const [name, of] of Object.entries(odd)) {
      const { rgba, mended } = await decode(insertBefore(file, of));
      t.deepEqual(rgba, whole.rgba, `${kind}, ${name}`);
      t.is(mended, 'stray_bytes', `${kind}, ${name}`);
    }
    const filled = await decode(insertBefore(file, () => [0xff, 0xff]));
    t.deepEqual([filled.rgba, filled.mended], [whole.rgba, undefined], 'fill bytes alone');
  }
});

test('stray bytes › that can be the rest of a damaged part are refused', async t => {
  for (const [kind, file] of RESTARTS) {
    const doubtful: Record<string, (marker: number) => readonly number[]> = {
      'other bytes before one': marker => (marker === 2 ? [0x55] : []),
      'other bytes before two': marker => (marker < 2 ? [0x55, 3] : []),
      'as many as no writer': () => zeros(600),
      'other numbers of other bytes': marker => [1, 2, 3, 4].slice(0, 1 + (marker % 4)),
    };
    for (const [name, of] of Object.entries(doubtful)) {
      t.is(await read(insertBefore(file, of)), undefined, `${kind}, ${name}`);
    }
  }
});

test('stray bytes › damage beside them never goes unnoticed more often than without them', async t => {
  for (const [kind, file] of RESTARTS) {
    const odd = insertBefore(file, () => [0]);
    const spoil = (bytes: Buffer, share: number) => {
      const spoilt = Buffer.from(bytes);
      const start = jpegDataStart(bytes);
      const at = start + Math.floor((bytes.length - start - 4) * share);
      spoilt[at] = (spoilt[at] ?? 0) ^ 0x5a;
      return spoilt;
    };
    const refused = { plain: 0, odd: 0 };
    for (let share = 0; share < 1; share += 0.01) {
      if ((await read(spoil(file, share))) === undefined) refused.plain++;
      if ((await read(spoil(odd, share))) === undefined) refused.odd++;
    }
    t.log(kind, refused);
    t.true(refused.plain > 10 && refused.odd >= refused.plain, kind);
    for (const share of [0.3, 0.6, 0.9]) {
      const cut = odd.subarray(0, Math.floor(odd.length * share));
      t.is(await read(cut), undefined, `${kind} cut`);
      t.is(await read(Buffer.concat([cut, END])), undefined, `${kind} cut, with an end`);
    }
  }
});

test('a WebP without the pad byte of its last chunk is read, and said to be mended', async t => {
  const odd = riff('EXIF', Buffer.from('Exif\0\0x'));
  for (const lossless of [true, false]) {
    const plain = await asSharp(BUSY).webp({ lossless }).toBuffer();
    const canvas = Buffer.alloc(10);
    canvas[0] = 0x08;
    canvas.writeUIntLE(WIDTH - 1, 4, 3);
    canvas.writeUIntLE(HEIGHT - 1, 7, 3);
    const body = [Buffer.from('WEBP'), riff('VP8X', canvas), plain.subarray(12), odd];
    const file = riff('RIFF', Buffer.concat(body));
    const whole = await decode(file);
    t.is(whole.mended, undefined);
    const cut = file.subarray(0, file.length - 1);
    const uncounted = Buffer.from(cut);
    uncounted.writeUInt32LE(cut.length - 8, 4);
    for (const unpadded of [cut, uncounted]) {
      const { rgba, mended } = await decode(unpadded);
      t.deepEqual(rgba, whole.rgba);
      t.is(mended, 'pad_byte');
    }
    for (const bytes of [2, 3, 20]) {
      t.is(await read(file.subarray(0, file.length - bytes)), undefined, `${bytes} bytes less`);
    }
  }
});

// No encoder here writes arithmetic coding (ITU-T T.81, annex D).

/** Written by jpegtran of libjpeg-turbo, 16 x 16 pixels: red is 16 x, green 16 y, blue 128. */
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
const NEAR = 12;

const asIs = { declared: undefined, onOpened: () => undefined };

for (const [kind, text] of Object.entries({ SEQUENTIAL, PROGRESSIVE })) {
  const file = Buffer.from(text, 'base64');

  test(`arithmetic coding › ${kind.toLowerCase()}: an image and a background as another JPEG`, async t => {
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

  test(`arithmetic coding › ${kind.toLowerCase()}: one that is cut short is refused`, async t => {
    for (let bytes = 20; bytes < file.length - 2; bytes += 20) {
      const cut = file.subarray(0, bytes);
      await t.throwsAsync(decode(cut), { code: 'PROCESSING_FAILED' }, `${bytes} bytes`);
    }
  });
}
