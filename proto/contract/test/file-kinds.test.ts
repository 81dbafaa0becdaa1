import test from 'ava';
import { describeDamaged, describeUnread, readImageHeader } from '../image-header.ts';

const text = (start: string) => Buffer.from(start, 'latin1');
const iso = (brand: string) => text(`\0\0\0\x14ftyp${brand}\0\0\0\0isom`);
/** In the order of the table, and files that look similar. */
const KINDS: readonly (readonly [file: Buffer, named: RegExp])[] = [
  [text(''), /^This is an empty file\. Send an image as JPEG, PNG/],
  [text('\0\0'), /file of zeros/],
  [text('GIF89a\x01\0\x01\0\0\0\0;'), /a GIF picture/],
  [text('II*\0\x10\0\0\0CR\x02\0'), /is a camera raw file/],
  [text('II*\0\x08\0\0\0\0\0\0\0'), /a TIFF picture or a camera raw/],
  [text('MM\0*\0\0\0\x08'), /a TIFF picture or a camera raw/],
  [text(`BM\x46\0\0\0\0\0\0\0\x36\0`), /a BMP picture/],
  [text('BMW is no bitmap'), /plain text/],
  [text('\0\0\x01\0\x01\0'), /an icon \(ICO\)/],
  [text('8BPS\0\x01\0\0'), /Photoshop document \(PSD\)/],
  [text('\0\0\0\x0cjP  \r\n\x87\n'), /JPEG 2000/],
  [text('%PDF-1.7\n%\xe2\xe3'), /a PDF document/],
  [text('PK\x03\x04\x14\0'), /a ZIP archive/],
  [text('\x1f\x8b\x08\0'), /a gzip archive/],
  [text('\x1aE\xdf\xa3\x01'), /a WebM or Matroska video/],
  [text('RIFF\x24\0\0\0AVI LIST'), /an AVI video/],
  [text('\0\0\0\x20moov\0\0'), /a QuickTime video/],
  [iso('qt  '), /a QuickTime video/],
  [iso('isom'), /an MP4 video/],
  [iso('msf1'), /a HEIF image sequence/],
  [iso('crx '), /a camera raw file \(CR3\)/],
  [iso('abcd'), /ISO media file of the brand "abcd"/],
  [text('\xef\xbb\xbf<?xml version="1.0"?>\n<!-- a > b --><svg xmlns="x"/>'), /an SVG drawing/],
  [text('<!DOCTYPE svg PUBLIC "-//W3C">\n<svg>'), /an SVG drawing/],
  [text('\r\n<!-- <svg> -->\n<!DOCTYPE html><html>'), /a web page \(HTML\)/],
  [text('<?xml version="1.0"?><Error>'), /an XML document/],
  [text(' {"error":"not found"}'), /is JSON/],
  [text('data:image/png;base64,iVBORw0KGgo'), /image_base64/],
  [text('/9j/4AAQSkZJRg'), /image_base64/],
  [text('not a picture at all'), /is plain text\./],
  [Buffer.from('照片', 'utf8'), /is plain text\./],
  [text('\xff\xfen\0o\0'), /plain text \(UTF-16\)/],
  [text('\x7fELF\x02\x01\x01'), /a file of an unknown kind/],
  // Only the bytes that are read count, and an endless comment costs no more.
  [text(`${'<!-- -->'.repeat(80)}<`), /an XML|plain text/],
];

test('a refused file is named by its first bytes', async t => {
  for (const [file, named] of KINDS) {
    const read = (offset: number, length: number) => file.subarray(offset, offset + length);
    t.regex(await describeUnread(read, file.length), named, file.toString('latin1', 0, 40));
  }
});

/** How programs damage a file that they read as text and write again. */
const AS_TEXT: Readonly<Record<string, (file: Buffer) => Buffer>> = {
  'UTF-8': file => Buffer.from(file.toString('utf8')),
  'Latin-1': file => Buffer.from(file.toString('latin1')),
  'Windows-1252': file => Buffer.from(new TextDecoder('windows-1252').decode(file)),
  ASCII: file => file.map(byte => (byte > 127 ? 0x3f : byte)) as Buffer,
};
const TAIL = Buffer.from(Array.from({ length: 64 }, (_, at) => 255 - ((at * 37) % 256)));
const WHOLE: Readonly<Record<string, readonly string[]>> = {
  JPEG: [
    '\xff\xd8\xff\xe0\0\x10JFIF\0\x01',
    '\xff\xd8\xff\xe1\x9f\xfeExif\0\0MM',
    '\xff\xd8\xff\xdb\0\x84\0\x08',
    '\xff\xd8\xff\xe2\x0c\x58ICC_PROFILE\0\x01',
  ],
  PNG: ['\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80'],
  WebP: ['RIFF\xa4\xff\x01\0WEBPVP8X'],
  'JPEG XL': ['\xff\x0a\xfa\x1f\0\x90', '\0\0\0\x0cJXL \r\n\x87\n\0\0\0\x14'],
};

const described = (file: Buffer) =>
  describeUnread((offset, length) => file.subarray(offset, offset + length), file.length);

test('an image that was read as text on the way is named, with what to do', async t => {
  for (const [format, starts] of Object.entries(WHOLE)) {
    for (const start of starts) {
      const file = Buffer.concat([text(start), TAIL]);
      for (const [as, mangle] of Object.entries(AS_TEXT)) {
        if (as === 'ASCII' && start.startsWith('\xff\x0a')) continue;
        const named = new RegExp(`^This is a ${format} whose bytes were read as text.*as bytes`);
        t.regex(await described(mangle(file)), named, as);
      }
    }
  }
  t.regex(await described(text('\0\x10JFIF\0\x01\x01')), /a JPEG whose bytes were read/);
  for (const png of ['\x89PNG\n\x1a\n\0', '\x89PNG\r\r\n\x1a\r\n\0', 'PNG\r\n\x1a\n\0']) {
    t.regex(await described(text(png)), /a PNG whose bytes were read as text/);
  }
  const other = AS_TEXT['UTF-8']!(Buffer.concat([text('\x7fELF\x02\x01'), TAIL]));
  t.regex(await described(other), /a binary file whose bytes were read as text/);
  for (const plain of ['????', '????: is it Exif?', '�� JFIF', `${'�'.repeat(99)} ruined`]) {
    t.regex(await described(Buffer.from(plain)), /is plain text\./, plain);
  }
});

test('a damaged image of a known format says so if its bytes were read as text', t => {
  const avif = Buffer.concat([iso('avif'), TAIL]);
  t.is(describeDamaged(avif, 'Damaged.'), 'Damaged.');
  for (const as of ['UTF-8', 'Latin-1', 'Windows-1252']) {
    t.regex(describeDamaged(AS_TEXT[as]!(avif), 'Damaged.'), /^Damaged\. .*read as text.*bytes/);
  }
});

test('an image behind something else is named, with what to do', async t => {
  const before: readonly (readonly [string, RegExp])[] = [
    ['\xef\xbb\xbf', /behind a byte order mark/],
    ['\r\n', /behind blank lines/],
    ['HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n\r\n', /behind HTTP headers/],
    [`content-type: image/jpeg\nx: ${'y'.repeat(1000)}\n\n`, /behind HTTP headers/],
    ['--x\r\nContent-Disposition: form-data; name="f"\r\n\r\n', /the head of a part of a form/],
    ['<br />\n<b>Warning</b>: é\n', /behind other text/],
  ];
  const starts = [WHOLE.JPEG, WHOLE.PNG, WHOLE.WebP, ['\0\0\0\x1cftypavif']].map(of => of![0]!);
  for (const [other, named] of before) {
    for (const start of starts) {
      const file = Buffer.concat([Buffer.from(other, 'latin1'), text(start), TAIL]);
      t.regex(await described(file), named, other);
      t.regex(await described(file), /Send the file alone/);
    }
  }
  const inside = Buffer.concat([text('%PDF-1.7\n'), text(starts[0]!), TAIL]);
  t.regex(await described(inside), /a PDF document/);
  t.regex(await described(Buffer.concat([text('\x01\x02'), inside])), /an unknown kind/);
});

/** A JPEG up to its frame header: 16 x 16 pixels, one component. */
const jpeg = (marker: number, bits: number) =>
  Buffer.from([0xff, 0xd8, 0xff, marker, 0, 11, bits, 0, 16, 0, 16, 1, 1, 0x11, 0]);
const VARIANTS: readonly (readonly [file: Buffer, named: RegExp])[] = [
  [jpeg(0xc0, 12), /^This is a JPEG with 12 bits a sample\. .*Send a baseline JPEG/],
  [jpeg(0xc1, 12), /a JPEG with 12 bits/],
  [jpeg(0xc2, 12), /a JPEG with 12 bits/],
  [jpeg(0xca, 12), /a JPEG with 12 bits/],
  [jpeg(0xc3, 8), /a lossless or hierarchical JPEG/],
  [jpeg(0xc3, 16), /a lossless or hierarchical JPEG/],
  [jpeg(0xc7, 8), /a lossless or hierarchical JPEG/],
  [jpeg(0xcb, 8), /a lossless or hierarchical JPEG/],
  [jpeg(0xf7, 8), /a JPEG-LS picture/],
  [
    text('\x89PNG\r\n\x1a\n\0\0\0\x04CgBI\x50\0\x20\x02\0\0\0\0'),
    /a PNG in Apple.*\(CgBI\).*standard PNG/,
  ],
];

test('variants that no decoder here reads are named, and are no image', async t => {
  for (const [file, named] of VARIANTS) {
    const read = (offset: number, length: number) => file.subarray(offset, offset + length);
    t.is(await readImageHeader(read, file.length), undefined);
    t.regex(await describeUnread(read, file.length), named);
  }
  const address = await describeUnread(offset => jpeg(0xc0, 12).subarray(offset), 15, 'image/jpeg');
  t.regex(address, /^The address returned a JPEG with 12 bits.*image\/jpeg.*Send a baseline JPEG/);
});

test('JPEG by arithmetic codes, and one whose depth is damaged, are images', async t => {
  for (const file of [jpeg(0xc9, 8), jpeg(0xca, 8), jpeg(0xc0, 72), jpeg(0xc0, 0)]) {
    const header = await readImageHeader(offset => file.subarray(offset), file.length);
    t.like(header, { format: 'jpeg', width: 16, height: 16 });
  }
});

test('the refusal of an image_url says what the address returned, with its Content-Type', async t => {
  const page = text('<!doctype html>');
  const read = (offset: number, length: number) => page.subarray(offset, offset + length);
  const asPicture = await describeUnread(read, page.length, 'image/jpeg');
  t.regex(
    asPicture,
    /^The address returned a web page \(HTML\) \(Content-Type: image\/jpeg\)\. Send/,
  );
  t.regex(
    await describeUnread(read, page.length, ''),
    /^The address returned a web page \(HTML\)\. Send/,
  );
});
