/** What stands before the bytes of a submission: the forms of its body, their bounds, its places. */
import { inFile, type Mutation } from './mutation.ts';

const BODY = 'control-plane/src/http/body';
const READER = `${BODY}/multipart-reader.ts`;
const HEAD = `${BODY}/part-head.ts`;
const TYPE = 'control-plane/src/http/headers/content-type.ts';
const FORM = `${BODY}/matting-form.ts`;
const QUERY = `${BODY}/query-fields.ts`;
const UPLOAD = 'control-plane/src/services/submission/submit-upload.ts';

const inReader = inFile('control-plane/test/http/body/multipart-reader.test.ts');
const inJava = inFile('control-plane/test/http/routes/java-clients.test.ts');
const inRoutes = inFile('control-plane/test/http/routes/forms.test.ts');
const inConnections = inFile('control-plane/test/http/connections/forms.test.ts', 'forms');
const inBackground = inFile('control-plane/test/http/connections/forms.test.ts', 'a background');
const CUT = 'that are cut at whatever byte are refused and leave nothing';
const KINDS = 'a form: syntax, names and kinds of its parts';
const SOURCES = 'a form: one source, then its values in the order of JSON';
const QUERIES = 'a picture as the body: its query, its bytes';

const PARTS: readonly Mutation[] = [
  {
    name: 'Base64 of the URL-safe alphabet is taken in a long text',
    file: 'control-plane/src/sources/base64-decoder.ts',
    find: 'if (piece.includes(HYPHEN) || piece.includes(UNDERSCORE)) return 0;',
    replace: '',
    caughtBy: inFile(
      'control-plane/test/sources/base64-decoder.test.ts',
      'Base64 that is taken',
    )('takes a long text as it takes its pieces, whatever stands in it'),
  },
  {
    name: 'a form may end before its last boundary',
    file: READER,
    find: "if (this.#state !== 'end') throw",
    replace: 'if (false) throw',
    caughtBy: inConnections(CUT),
  },
  {
    name: 'a line that begins like a boundary ends a part',
    file: READER,
    find: "if (text.length < PADDING_BYTES_MAX && DELIMITER_END_START.test(text)) return undefined;\n      throw malformed('a boundary is followed by something else than the end of its line');",
    replace: 'return undefined;',
    caughtBy: inReader('refuses a longer boundary, wherever the body is split'),
  },
  {
    name: 'a boundary is overlooked where chunks meet',
    file: READER,
    find: 'if (bytes.compare(this.#delimiter, 0, length, at) === 0) return at;',
    replace: '',
    caughtBy: inReader('reads every lawful form, however it is cut'),
  },
  {
    name: 'text behind the last boundary is ignored',
    file: READER,
    find: "|| !WHITE_SPACE.test(bytes.toString('latin1'))",
    replace: '',
    caughtBy: inReader('refuses text behind the last boundary, wherever the body is split'),
  },
  {
    name: 'the headers of a part have no bound',
    file: READER,
    find: '(end === -1 && bytes.length > PART_HEAD_BYTES_MAX)',
    replace: 'false',
    caughtBy: inReader('refuses headers and parts that are too many'),
  },
  {
    name: 'parts have no bound',
    file: READER,
    find: 'if (this.#parts > FIELDS_MAX) throw',
    replace: 'if (false) throw',
    caughtBy: inReader('refuses headers and parts that are too many'),
  },
  {
    name: 'a parameter of a disposition may come twice',
    file: TYPE,
    find: 'if (parameters.has(key)) return undefined;',
    replace: '',
    caughtBy: inReader('refuses two names, wherever the body is split'),
  },
  {
    name: 'bytes that two charsets read differently are taken',
    file: `${BODY}/part-text.ts`,
    find: 'if (this.#isAscii && !isAscii(raw)) {',
    replace: 'if (false) {',
    caughtBy: inJava(
      'UTF-8 under the name of another charset is refused too: its bytes say two things',
    ),
  },
  {
    name: 'the two interfaces differ about the charset of a form',
    file: TYPE,
    find: "if (type?.type === 'application/json' && !isJson) return undefined;",
    replace: 'if (!isJson && type !== undefined && !extendsAscii(type)) return undefined;',
    caughtBy: inFile('control-plane/test/http/headers/content-type.test.ts')(
      'a charset counts for JSON alone, where it makes others of the bytes of ASCII',
    ),
  },
  {
    name: 'a part in Base64 is taken for bytes',
    file: HEAD,
    find: 'if (PLAIN_ENCODINGS.includes(encoding.toLowerCase())) return;',
    replace: 'return;',
    caughtBy: inReader('refuses Base64, wherever the body is split'),
  },
];

const inBounds = inFile('control-plane/test/http/body/read-bounds.test.ts');
const inJson = inFile('control-plane/test/http/body/json-fields.test.ts');

/** What means nothing is counted too. */
const BOUNDS: readonly Mutation[] = [
  {
    name: 'pairs without a value are not counted',
    file: 'control-plane/src/http/removebg/urlencoded-reader.ts',
    find: 'if (this.#pairs > FIELDS_MAX) throw',
    replace: 'if (false) throw',
    caughtBy: inBounds('of endless pairs without a value no more is read than what is refused'),
  },
  {
    name: 'unknown fields of JSON are not counted',
    file: `${BODY}/json-fields.ts`,
    find: 'if (this.#given > FIELDS_MAX) throw',
    replace: 'if (false) throw',
    caughtBy: inBounds('of endless unknown fields no more is read than what is refused'),
  },
  {
    name: 'an unknown value of JSON has no bound',
    file: `${BODY}/json-fields.ts`,
    find: 'throw malformed(`the value of an unknown field is over ${RAW_TEXT_BYTES_MAX} bytes`);',
    replace: 'return chunk.length;',
    caughtBy: inBounds('of endless arrays in arrays no more is read than what is refused'),
  },
  {
    name: 'an unknown value of JSON is skipped unread',
    file: `${BODY}/json-fields.ts`,
    find: 'JSON.parse(this.#utf8.decode(this.#raw.subarray(0, this.#rawLength)));',
    replace: '',
    caughtBy: inJson('refuses "{]", which is skipped by nobody'),
  },
  {
    name: 'pairs of a query are not counted',
    file: QUERY,
    find: 'if (pairs.length > FIELDS_MAX) throw',
    replace: 'if (false) throw',
    caughtBy: inBounds('a query of empty pairs is refused at the bound'),
  },
  {
    name: 'fields of a page are counted where they mean something',
    file: 'control-plane/src/http/account/session/form-body.ts',
    find: "if (text.split('&', FIELDS_MAX + 1).length > FIELDS_MAX) throw new PageError('badForm');",
    replace: '',
    caughtBy: inBounds('a form of the account area has a bound of its fields, empty ones too'),
  },
  {
    name: 'marks on a letter have no bound',
    file: 'control-plane/src/http/account/session/form-body.ts',
    find: '|| MARKS_IN_A_ROW.test(value)',
    replace: '',
    caughtBy: inBounds('a form of the account area has a bound of marks on one letter'),
  },
];

const CHUNKS: readonly Mutation[] = [
  {
    name: 'chunks of a body are not counted',
    file: 'program/ports/http-guard.ts',
    find: 'over = chunks > CHUNKS_FREE + bytes / CHUNK_BYTES_MIN;',
    replace: '',
    caughtBy: inFile(
      'control-plane/test/http/connections/forms.test.ts',
      'a body in tiny chunks',
    )('ends the connection of a stranger, however it would be answered'),
  },
  {
    name: 'a body that was cut at the bound of its chunks is whole',
    file: 'program/ports/http-guard.ts',
    find: 'if (over) return false;',
    replace: '',
    caughtBy: inFile('program/ports/test/chunked-bodies.test.ts')(
      'more chunks of 1 than bytes are worth end the connection, once',
    ),
  },
  {
    name: 'chunks are gathered for a reader who does not come',
    file: 'program/ports/http-guard.ts',
    find: 'return request.readableLength + gatheredBytes < request.readableHighWaterMark;',
    replace: 'return true;',
    caughtBy: inFile('program/ports/test/chunked-bodies.test.ts')(
      'a body that nobody reads yet is not gathered without end',
    ),
  },
];

const FIELDS: readonly Mutation[] = [
  {
    name: 'a part may come twice',
    file: FORM,
    find: 'if (this.#seen.has(field)) throw givenTwice(field);',
    replace: '',
    caughtBy: inRoutes(KINDS),
  },
  {
    name: 'a file may be any field',
    file: FORM,
    find: "if (isFile) throw wrongKind(field, 'must be text: a part without a file name');",
    replace: '',
    caughtBy: inRoutes(KINDS),
  },
  {
    name: 'a file and Base64 are written into one upload',
    file: FORM,
    find: 'if (isSecond) throw notOneSource(this.#seen);',
    replace: '',
    caughtBy: inRoutes(SOURCES),
  },
  {
    name: 'a text of a form has no bound',
    file: `${BODY}/part-text.ts`,
    find: 'if (this.#bytes > TEXT_BYTES_MAX) return OVERLONG;',
    replace: '',
    caughtBy: inRoutes(SOURCES),
  },
  {
    name: 'a secret is taken from the query',
    file: QUERY,
    find: "  'callback_secret',\n",
    replace: '',
    caughtBy: inRoutes(QUERIES),
  },
  {
    name: 'a parameter of the query may come twice',
    file: QUERY,
    find: 'if (texts.has(field)) throw givenTwice(field);',
    replace: '',
    caughtBy: inRoutes(QUERIES),
  },
];

const UPLOADS: readonly Mutation[] = [
  {
    name: 'a background takes a place of its own',
    file: UPLOAD,
    find: 'if (this.#files === 0) this.#release = await this',
    replace: 'this.#release = await this',
    caughtBy: inRoutes('a picture and its background take one place, given back once'),
  },
  {
    name: 'a place is given back while the background is stored',
    file: UPLOAD,
    find: 'if (this.#files === 0) this.#release?.();',
    replace: 'this.#release?.();',
    caughtBy: inBackground(
      'needs no place beside that of its picture, so that two requests never wait for each other',
    ),
  },
  {
    name: 'an image as bytes has no bound of its own',
    file: UPLOAD,
    find: 'if (this.#reader.decodedBytes > this.#role.bytesMax) throw imageTooLarge(this.#role);',
    replace: '',
    caughtBy: inConnections('that never end are cut at the bound of a body'),
  },
];

export const FORM_MUTATIONS: readonly Mutation[] = [
  ...PARTS,
  ...BOUNDS,
  ...CHUNKS,
  ...FIELDS,
  ...UPLOADS,
];
