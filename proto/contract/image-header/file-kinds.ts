/** Names files of other formats by their first bytes. */

/** Fits the head of a web page, an SVG after a comment, or an answer's headers. */
export const KIND_BYTES = 2048;

type Kind = readonly [kind: string, ...starts: string[]];

/** Signatures in Latin-1; `?` is any byte. The first match counts. */
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
  // Files older than ISO media files begin without ftyp.
  ['a QuickTime video (MOV)', '????moov', '????mdat', '????wide'],
];

/** By the major brand of an ISO media file (mp4ra.org). */
const BY_BRAND: readonly Kind[] = [
  ['a QuickTime video (MOV)', 'qt  '],
  ['a camera raw file (CR3)', 'crx '],
  ['a sound file (M4A)', 'M4A ', 'M4B '],
  ['a 3GP video', '3g'],
  ['a HEIF image sequence', 'msf1'],
  ['an MP4 video', 'iso', 'mp4', 'avc1', 'M4V', 'dash', 'MSNV', 'mmp4', 'f4v '],
];

/** By the start of a text after its prologue. */
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
/** Markup before or around the first element. */
const PROLOGUE = /^\xef\xbb\xbf|<!--[\s\S]*?-->|<\?xml[^>]*>/g;
/** Controls except white space. UTF-16 has zeros. */
const NO_TEXT = /(?![\t\n\v\f\r])\p{Cc}/u;

function find(kinds: readonly Kind[], text: string): string | undefined {
  const fits = (start: string) =>
    [...start].every((character, at) => character === '?' || character === text[at]);
  return kinds.find(([, ...starts]) => starts.some(fits))?.[0];
}

/** A byte above 127 that was read as text and written as UTF-8 or ASCII. */
const HIGH = '(?:[\\xc2-\\xdf][\\x80-\\xbf]|[\\xe0-\\xef][\\x80-\\xbf]{2}|\\?)';
const FF = '(?:\\xef\\xbf\\xbd|\\xc3\\xbf|\\?)';
/** Signatures after that. Bytes above 127 may be missing, and line ends changed. */
const READ_AS_TEXT: readonly (readonly [format: string, start: RegExp])[] = [
  pattern('JPEG', `^${FF}${HIGH}${FF}${HIGH}(\\0|.{1,8}?[\\w./:]{4,32}\\0)`, '^\\0\\x10JFIF\\0'),
  pattern('PNG', `^(${HIGH}|[\\t\\x89])?PNG[\\r\\n]+\\x1a[\\r\\n]`),
  pattern('WebP', '^RIFF.{3,12}WEBPVP8'),
  pattern('JPEG XL', `^\\0\\0\\0\\x0cJXL [\\r\\n]+(${HIGH})?[\\r\\n]`, `^${FF}\\n.*\\0`),
];

const WHOLE = pattern(
  'an image',
  '\\xff\\xd8\\xff[\\xc0-\\xfe]',
  '\\x89PNG\\r\\n\\x1a\\n',
  'RIFF.{4}WEBPVP8',
  '.{4}ftyp(avif|heic|mif1)',
  '\\0\\0\\0\\x0cJXL ',
)[1];
const BEFORE_IT: readonly (readonly [what: string, text: RegExp])[] = [
  ['a byte order mark', /^\xef\xbb\xbf$/],
  ['blank lines', /^\s+$/],
  ['the head of a part of a form', /^\s*--/],
  ['HTTP headers', /^(?:HTTP\/|[\w-]+: ).*\n\r?\n$/s],
];

function pattern(name: string, ...starts: readonly string[]): readonly [string, RegExp] {
  return [name, new RegExp(starts.join('|'), 's')];
}

/** A binary file rarely has so many valid UTF-8 characters by chance. */
const MANGLED_MIN = 8;
const REPLACEMENT = /\ufffd/g;

/** A binary file was read as text and written as UTF-8. @param start as for `kindOfFile` */
export function isReadAsText(start: Buffer, characters = /[^\0-\x7f]/g): boolean {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(start, { stream: true });
    return NO_TEXT.test(text) && (text.match(characters)?.length ?? 0) >= MANGLED_MIN;
  } catch {
    // Not UTF-8.
    return false;
  }
}

export const SEND_BYTES =
  'Read and send the file as bytes, such as by arrayBuffer() in JavaScript or .content in Python.';

/** An image damaged by text conversion. `kind` as in `kindOfFile`. */
export function spoiltImage(
  start: Buffer,
): { readonly kind: string; readonly send: string } | undefined {
  const text = start.toString('latin1');
  if (find(BY_SIGNATURE, text) !== undefined) return undefined;
  const format = READ_AS_TEXT.find(([, known]) => known.test(text))?.[0];
  if (format !== undefined) return readAsText(`a ${format}`);
  const before = text.slice(0, WHOLE.exec(text)?.index ?? 0);
  if (before !== '' && !NO_TEXT.test(before.replaceAll(/[\x80-\xff]/g, ''))) {
    const what = BEFORE_IT.find(([, known]) => known.test(before))?.[0] ?? 'other text';
    return { kind: `an image behind ${what}`, send: 'Send the file alone, from its first byte.' };
  }
  return isReadAsText(start, REPLACEMENT) ? readAsText('a binary file') : undefined;
}

function readAsText(what: string) {
  return { kind: `${what} whose bytes were read as text on the way`, send: SEND_BYTES };
}

/** Follows "this is". undefined: unknown. @param start the first KIND_BYTES, or the whole file */
export function kindOfFile(start: Buffer): string | undefined {
  if (start.length === 0) return 'an empty file';
  if (start.every(byte => byte === 0)) return 'a file of zeros';
  const text = start.toString('latin1');
  if (text.slice(4, 8) === 'ftyp') return find(BY_BRAND, text.slice(8));
  const seen = find(BY_SIGNATURE, text);
  if (seen !== undefined) return seen;
  if (text.startsWith('\xff\xfe') || text.startsWith('\xfe\xff')) return 'plain text (UTF-16)';
  // Latin-1's C1 controls are parts of UTF-8 characters.
  if (NO_TEXT.test(text.replaceAll(/[\x80-\xff]/g, ''))) return undefined;
  const inner = text.replaceAll(PROLOGUE, '').trimStart();
  return BY_TEXT.find(([, known]) => known.test(inner))?.[0] ?? 'plain text';
}
