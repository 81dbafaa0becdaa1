/**
 * Bodies that are made to cost more than their bytes: of many small things, of what must be undone,
 * of what looks like an end. Each as a head that comes once and a piece that comes again and again.
 */
const BOUNDARY = 'a-boundary-of-a-form-that-is-as-long-as-those-of-some-browsers-are';
const DELIMITER = `\r\n--${BOUNDARY}`;
const PIECE_BYTES = 64 * 1024;
/** The most that a body may have. */
export const BODY_BYTES = 72 * 2 ** 20;

export interface HostileBody {
  readonly name: string;
  readonly path: '/v1.0/removebg' | '/v1/matting/jobs';
  readonly type: string;
  readonly once: string;
  readonly again: string;
  /** Bytes of each chunk of the transfer coding; absent: the body has a length. */
  readonly chunkBytes?: number;
}

const FORM = `multipart/form-data; boundary=${BOUNDARY}`;
const PAIRS = 'application/x-www-form-urlencoded';
const JSON_TYPE = 'application/json';

const part = (name: string, file = '') =>
  `--${BOUNDARY}\r\nContent-Disposition: form-data; name="${name}"${file}\r\n\r\n`;
const FILE = part('image_file', '; filename="photo.png"');
/** All but the last byte of the delimiter that ends a part. */
const NEARLY = DELIMITER.slice(0, -1);
/** Honest but for their length: what encoders and mail programs write. */
const LINES = `${'A'.repeat(76)}\r\n`;

type Manner = Omit<HostileBody, 'path'>;

const FORMS: readonly Manner[] = [
  { name: 'empty parts', type: FORM, once: '', again: `${part('a')}\r\n` },
  { name: 'a head without an end', type: FORM, once: `--${BOUNDARY}\r\n`, again: 'A: b\r\n' },
  { name: 'blanks behind a parameter', type: FORM, once: part('a').slice(0, -4), again: ' ' },
  { name: 'nearly boundaries', type: FORM, once: FILE, again: NEARLY },
  { name: 'line ends', type: FORM, once: FILE, again: '\r\n' },
  { name: 'carriage returns', type: FORM, once: FILE, again: '\r' },
];

const REMOVEBG: readonly Manner[] = [
  ...FORMS,
  { name: 'nearly boundaries, skipped', type: FORM, once: part('a'), again: NEARLY },
  { name: 'carriage returns, skipped', type: FORM, once: part('a'), again: '\r' },
  { name: '&', type: PAIRS, once: '', again: '&' },
  { name: 'a&', type: PAIRS, once: '', again: 'a&' },
  { name: 'a=b&', type: PAIRS, once: '', again: 'a=b&' },
  { name: '%41, skipped', type: PAIRS, once: 'a=', again: '%41' },
  { name: '+, skipped', type: PAIRS, once: 'a=', again: '+' },
  { name: '%41 as Base64', type: PAIRS, once: 'image_file_b64=', again: '%41' },
  { name: '%20 as Base64', type: PAIRS, once: 'image_file_b64=', again: '%20' },
  { name: 'A%0A as Base64', type: PAIRS, once: 'image_file_b64=', again: 'A%0A' },
  { name: '"a":1,', type: JSON_TYPE, once: '{', again: '"a":1,' },
  { name: '"":"",', type: JSON_TYPE, once: '{', again: '"":"",' },
  { name: '"a":{},', type: JSON_TYPE, once: '{', again: '"a":{},' },
  { name: '[[[[', type: JSON_TYPE, once: '{"a":', again: '[' },
  { name: 'white space in JSON', type: JSON_TYPE, once: '{', again: ' \n\t\r' },
  { name: 'a name without an end', type: JSON_TYPE, once: '{"', again: 'a' },
  { name: 'escapes, skipped', type: JSON_TYPE, once: '{"a":"', again: '\\u0041\\"' },
  { name: '\\u0041 as Base64', type: JSON_TYPE, once: '{"image_file_b64":"', again: '\\u0041' },
  { name: '\\n as Base64', type: JSON_TYPE, once: '{"image_file_b64":"', again: '\\n' },
  { name: '\\/ as Base64', type: JSON_TYPE, once: '{"image_file_b64":"', again: '\\/' },
];

const V1: readonly Manner[] = [
  ...FORMS,
  { name: 'white space in JSON', type: JSON_TYPE, once: '{', again: ' \n\t\r' },
  { name: 'a field of JSON', type: JSON_TYPE, once: '{"scale":"', again: 'a' },
  { name: '\\u0041 as Base64', type: JSON_TYPE, once: '{"image_base64":"', again: '\\u0041' },
  { name: '\\/ as Base64', type: JSON_TYPE, once: '{"image_base64":"', again: '\\/' },
  { name: 'blanks as Base64', type: JSON_TYPE, once: '{"image_base64":"', again: ' ' },
  { name: 'A and a blank as Base64', type: JSON_TYPE, once: '{"image_base64":"', again: 'A ' },
  {
    name: 'a blank every 300',
    type: JSON_TYPE,
    once: '{"image_base64":"',
    again: `${'A'.repeat(300)} `,
  },
  { name: 'Base64 in lines', type: FORM, once: part('image_base64'), again: LINES },
  { name: 'a text part', type: FORM, once: part('scale'), again: 'a' },
];

/** The transfer coding itself: what is counted of it is not the body. */
const CODED: readonly Manner[] = [1, 8, 64, 1024].map(chunkBytes => ({
  name: `chunks of ${chunkBytes}`,
  type: FORM,
  once: FILE,
  again: 'AAAAAAAA',
  chunkBytes,
}));

export const HOSTILE_BODIES: readonly HostileBody[] = [
  ...REMOVEBG.map(body => ({ ...body, path: '/v1.0/removebg' as const })),
  ...V1.map(body => ({ ...body, path: '/v1/matting/jobs' as const })),
  ...CODED.map(body => ({ ...body, path: '/v1/matting/jobs' as const })),
];

/** A request that is small by its route's bound, or by that of headers. */
export interface HostileRequest {
  readonly name: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const PICTURE = { 'content-type': 'image/png' };
/** Below the bound of all headers, 16 KiB, with those that every request has. */
const HEADER_BYTES = 15_000;
const FORM_BYTES = 32 * 1024;
const NOTIFICATION_BYTES = 8 * 1024;

function fill(again: string, bytes: number): string {
  return again.repeat(Math.floor(bytes / Buffer.byteLength(again)));
}

const query = (again: string): HostileRequest => ({
  name: `a query of ${again}`,
  path: `/v1/matting/jobs?${fill(again, HEADER_BYTES)}`,
  headers: PICTURE,
  body: 'x',
});
const inHeader = (name: string, again: string): HostileRequest => ({
  name: `${name} of ${again}`,
  path: '/v1/matting/jobs',
  headers: { ...PICTURE, [name]: fill(again, HEADER_BYTES) },
  body: 'x',
});
const signIn = (what: string, again: string): HostileRequest => ({
  name: `a sign-in of ${what}`,
  path: '/account/sign-in',
  headers: { 'content-type': PAIRS, origin: 'http://127.0.0.1' },
  body: fill(again, FORM_BYTES),
});
const notification = (again: string): HostileRequest => ({
  name: `a notification of ${again}`,
  path: '/account/payments/notifications',
  headers: { 'content-type': JSON_TYPE },
  body: fill(again, NOTIFICATION_BYTES),
});

export const HOSTILE_REQUESTS: readonly HostileRequest[] = [
  ...['&', 'a&', '%41', 'scale=&', '%'].map(query),
  ...['a=b; ', ';', '%41', '"'].map(again => inHeader('cookie', again)),
  ...['image/png,', ';', '"\\"'].map(again => inHeader('accept', again)),
  ...['wait=1,', '"\\"', ','].map(again => inHeader('prefer', again)),
  inHeader('content-type', '; a=b'),
  inHeader('x-forwarded-for', '1.1.1.1,'),
  signIn('&', '&'),
  signIn('a&', 'a&'),
  signIn('escapes', '%41'),
  signIn('accents', '\u0301\u0316'),
  ...['[', '{"a":', '{"a":1},'].map(notification),
];

/** Gives so many bytes of it, in pieces of 64 KiB; without the transfer coding. */
export function* piecesOf({ once, again }: HostileBody, bytes = BODY_BYTES): Generator<Buffer> {
  const piece = Buffer.alloc(PIECE_BYTES - (PIECE_BYTES % again.length), again, 'latin1');
  yield Buffer.from(once, 'latin1');
  for (let left = bytes - once.length; left > 0; left -= piece.length) {
    yield left < piece.length ? piece.subarray(0, left) : piece;
  }
}

/** Gives it as it goes over the wire, its transfer coding around it. */
export function* wireOf(body: HostileBody, bytes = BODY_BYTES): Generator<Buffer> {
  const { chunkBytes } = body;
  let plain: Buffer | undefined;
  let coded: Buffer = Buffer.alloc(0);
  for (const piece of piecesOf(body, bytes)) {
    // Almost every piece is the one before.
    if (plain === undefined || !piece.equals(plain)) {
      plain = piece;
      coded = chunked(piece, chunkBytes);
    }
    yield coded;
  }
  if (chunkBytes !== undefined) yield Buffer.from('0\r\n\r\n');
}

function chunked(piece: Buffer, chunkBytes: number | undefined): Buffer {
  if (chunkBytes === undefined) return piece;
  const parts: Buffer[] = [];
  for (let at = 0; at < piece.length; at += chunkBytes) {
    const bytes = piece.subarray(at, at + chunkBytes);
    parts.push(Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from('\r\n'));
  }
  return Buffer.concat(parts);
}

/** A form as clients send them, of so many bytes. */
export function honestForm(image: Buffer): { readonly type: string; readonly body: Buffer } {
  const body = [Buffer.from(FILE), image, Buffer.from(`${DELIMITER}--\r\n`)];
  return { type: FORM, body: Buffer.concat(body) };
}
