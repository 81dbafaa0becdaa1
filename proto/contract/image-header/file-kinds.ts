/** Names a file that is not of an input format, by its first bytes alone. */

/** Enough for the head of a web page or an SVG behind a comment. */
export const KIND_BYTES = 512;

type Kind = readonly [kind: string, ...starts: string[]];

/** Signatures in Latin-1, with `?` for any byte. The first that fits counts. */
const BY_SIGNATURE: readonly Kind[] = [
  ['a GIF picture', 'GIF8'],
  ['a camera raw file', 'II*\0????CR', 'IIU\0', 'IIRO', 'IIRS', 'MMOR', 'II\x1a\0'],
  ['a camera raw file', 'FUJIFILMCCD-RAW', 'FOVb', '\0MRM'],
  ['a TIFF picture or a camera raw file', 'II*\0', 'MM\0*', 'II+\0', 'MM\0+'],
  ['a BMP picture', 'BM????\0\0\0\0'],
  ['an icon (ICO)', '\0\0\x01\0?\0', '\0\0\x02\0?\0'],
  ['a Photoshop document (PSD)', '8BPS'],
  ['a JPEG 2000 picture', '\0\0\0\x0cjP  ', '\xff\x4f\xff\x51'],
  ['a PDF document', '%PDF-'],
  ['a PostScript document', '%!PS'],
  ['a ZIP archive', 'PK\x03\x04', 'PK\x05\x06', 'PK\x07\x08'],
  ['a gzip archive', '\x1f\x8b'],
  ['a RAR archive', 'Rar!'],
  ['a 7z archive', '7z\xbc\xaf'],
  ['a WebM or Matroska video', '\x1aE\xdf\xa3'],
  ['an AVI video', 'RIFF????AVI '],
  ['a sound file', 'RIFF????WAVE', 'ID3', '\xff\xfb', 'OggS', 'fLaC'],
  // Files from before ISO media files have no ftyp in front.
  ['a QuickTime video (MOV)', '????moov', '????mdat', '????wide'],
];

/** Kinds by the major brand of an ISO media file (mp4ra.org). */
const BY_BRAND: readonly Kind[] = [
  ['a QuickTime video (MOV)', 'qt  '],
  ['a camera raw file (CR3)', 'crx '],
  ['a sound file (M4A)', 'M4A ', 'M4B '],
  ['a 3GP video', '3g'],
  ['a HEIF image sequence', 'msf1'],
  ['an MP4 video', 'iso', 'mp4', 'avc1', 'M4V', 'dash', 'MSNV', 'mmp4', 'f4v '],
];

/** Kinds of texts by their start after the prologue. */
const BY_TEXT: readonly (readonly [kind: string, start: RegExp])[] = [
  ['an SVG drawing', /^(<!DOCTYPE svg[^>]*>\s*)?<svg[\s>]/i],
  ['a web page (HTML)', /^<(!doctype html|html|head|body|script|meta|title|div|p|h1)\b/i],
  ['an XML document', /^<[?!a-z]/i],
  ['JSON', /^[[{]/],
  [
    'Base64 text, which belongs in image_base64',
    /^(data:[\w/+.-]+;base64,|\/9j\/|iVBORw0KGgo|UklGR)/,
  ],
];
/** Markup in front of the first element, or around it. */
const PROLOGUE = /^\xef\xbb\xbf|<!--[\s\S]*?-->|<\?xml[^>]*>/g;
/** All controls but white space: UTF-16 has zeros. */
const NO_TEXT = /(?![\t\n\v\f\r])\p{Cc}/u;

function find(kinds: readonly Kind[], text: string): string | undefined {
  const fits = (start: string) =>
    [...start].every((character, at) => character === '?' || character === text[at]);
  return kinds.find(([, ...starts]) => starts.some(fits))?.[0];
}

/** To follow "this is". Undefined: not known. @param start the first KIND_BYTES, or the whole file */
export function kindOfFile(start: Buffer): string | undefined {
  if (start.length === 0) return 'an empty file';
  if (start.every(byte => byte === 0)) return 'a file of zeros';
  const text = start.toString('latin1');
  if (text.slice(4, 8) === 'ftyp') return find(BY_BRAND, text.slice(8));
  const seen = find(BY_SIGNATURE, text);
  if (seen !== undefined) return seen;
  if (text.startsWith('\xff\xfe') || text.startsWith('\xfe\xff')) return 'plain text (UTF-16)';
  // C1 controls of Latin-1 are parts of characters in UTF-8.
  if (NO_TEXT.test(text.replaceAll(/[\x80-\xff]/g, ''))) return undefined;
  const inner = text.replaceAll(PROLOGUE, '').trimStart();
  return BY_TEXT.find(([, known]) => known.test(inner))?.[0] ?? 'plain text';
}
