/** These guard the bytes of a submission: the forms of its body, their bounds, its places. */
import { mutationsOf } from './mutation.ts';

export const FORM_MUTATIONS = mutationsOf`
file control-plane/http/base64.ts
tests control-plane/core/submission/pictures.test.ts: Base64 that is taken
Base64 of the URL-safe alphabet is taken in a long text
  - if (piece.includes(HYPHEN) || piece.includes(UNDERSCORE)) return 0;
  = takes a long text as it takes its pieces, whatever stands in it

file control-plane/http/multipart.ts
tests control-plane/core/http/forms.test.ts: forms
a form may end before its last boundary
  - if (this.#state !== 'end') throw
  + if (false) throw
  = that are cut at whatever byte are refused and leave nothing
tests control-plane/http/multipart.test.ts: multipart
a line that begins like a boundary ends a part
  - if (text.length < PADDING_BYTES_MAX && DELIMITER_END_START.test(text)) return undefined;
  -       throw malformed('Something other than the end of the line follows a boundary.');
  + return undefined;
  = refuses a longer boundary, wherever the body is split
a boundary is overlooked where chunks meet
  - if (bytes.compare(this.#delimiter, 0, length, at) === 0) return at;
  = reads every lawful form, however it is cut
text behind the last boundary is ignored
  - || !WHITE_SPACE.test(bytes.toString('latin1'))
  = refuses text behind the last boundary, wherever the body is split
the headers of a part have no bound
  - (end === -1 && bytes.length > PART_HEAD_BYTES_MAX)
  + false
  = refuses headers and parts that are too many
parts have no bound
  - if (this.#parts > FIELDS_MAX) throw
  + if (false) throw
  = refuses headers and parts that are too many

file control-plane/http/request-headers.ts
tests control-plane/http/multipart.test.ts: multipart
a parameter of a disposition may come twice
  - if (parameters.has(key)) return undefined;
  = refuses two names, wherever the body is split
tests control-plane/http/request-headers.test.ts: Content-Type
the two interfaces differ about the charset of a form
  - if (type?.type === 'application/json' && !isJson) return undefined;
  + if (!isJson && type !== undefined && !extendsAscii(type)) return undefined;
  = a charset counts for JSON alone, where it makes others of the bytes of ASCII

file control-plane/http/multipart.ts
tests control-plane/core/submission/forms.test.ts: clients in Java
bytes that two charsets read differently are taken
  - if (this.#isAscii && !isAscii(raw)) {
  + if (false) {
  = UTF-8 under the name of another charset is refused too: its bytes say two things
tests control-plane/core/submission/forms.test.ts
a text of a form has no bound
  - if (this.#isOverlong) return OVERLONG;
  = a form: one source, then its values in the order of JSON
tests control-plane/http/multipart.test.ts: multipart
a part in Base64 is taken for bytes
  - if (PLAIN_ENCODINGS.includes(encoding.toLowerCase())) return;
  + return;
  = refuses Base64, wherever the body is split

file control-plane/http/urlencoded.ts
tests control-plane/removebg/removebg-body.test.ts: bounds
pairs without a value are not counted
  - if (this.#pairs > FIELDS_MAX) throw
  + if (false) throw
  = of endless pairs without a value no more is read than what is refused

file control-plane/http/json-fields.ts
tests control-plane/removebg/removebg-body.test.ts: bounds
unknown fields of JSON are not counted
  - if (this.#given > FIELDS_MAX) throw
  + if (false) throw
  = of endless unknown fields no more is read than what is refused
an unknown value of JSON has no bound
  - const end = endOfNested(this.#nesting, chunk, from);
  + const end = endOfNested(this.#nesting, chunk, from);
  +     if (this.#raw.length + end - from > RAW_TEXT_BYTES_MAX) return chunk.length;
  = of endless arrays in arrays no more is read than what is refused
tests control-plane/core/http/bodies.test.ts: unknown fields
an unknown value of JSON is skipped unread
  - JSON.parse(UTF8.decode(this.#raw.view()));
  = refuses "{]", which is skipped by nobody

file control-plane/http/body-fields.ts
tests control-plane/core/http/bodies.test.ts: bounds
pairs of a query are not counted
  - if (pairs.length > FIELDS_MAX) throw
  + if (false) throw
  = a query of empty pairs is refused at the bound

file control-plane/core/http/read-matting-body.ts
tests control-plane/core/submission/forms.test.ts
a secret is taken from the query
  - 'callback_secret',
  = a picture as the body: its query, its bytes
a parameter of the query may come twice
  - if (texts.has(field)) throw givenTwice(field);
  = a picture as the body: its query, its bytes

file control-plane/portal/session/visit.ts
tests control-plane/portal/session/forms.test.ts
fields of a page are counted where they mean something
  - if (text.split('&', FIELDS_MAX + 1).length > FIELDS_MAX) throw new PageError('badForm');
  = a form of the account area has a bound of its fields, empty ones too
marks on a letter have no bound
  - || MARKS_IN_A_ROW.test(value)
  = a form of the account area has a bound of marks on one letter

file program/ports/chunked-bodies.ts
tests control-plane/core/http/forms.test.ts: a body in tiny chunks
chunks of a body are not counted
  - over = chunks > CHUNKS_FREE + bytes / CHUNK_BYTES_MIN;
  = ends the connection of a stranger, however it would be answered
tests program/ports/test/chunked-bodies.test.ts
a body that was cut at the bound of its chunks is whole
  - if (over) return false;
  = more chunks of 1 than bytes are worth end the connection, once
chunks are gathered for a reader who does not come
  - return request.readableLength + gatheredBytes < request.readableHighWaterMark;
  + return true;
  = a body that nobody reads yet is not gathered without end

file control-plane/core/http/read-matting-body.ts
tests control-plane/core/submission/forms.test.ts
a part may come twice
  - if (this.#seen.has(field)) throw givenTwice(field);
  = a form: syntax, names and kinds of its parts
a file may be any field
  - if (isFile) throw wrongKind(field, 'must be text. Send it as a part without a file name');
  = a form: syntax, names and kinds of its parts
a file and Base64 are written into one upload
  - if (isSecond) throw notOneSource(this.#seen);
  = a form: one source, then its values in the order of JSON

file control-plane/core/submission/upload-slot.ts
tests control-plane/core/submission/forms.test.ts
a background takes a place of its own
  - if (this.#files === 0) this.#release = await this
  + this.#release = await this
  = a picture and its background take one place, given back once
tests control-plane/core/http/forms.test.ts: a background
a place is given back while the background is stored
  - if (this.#files === 0) this.#release?.();
  + this.#release?.();
  = needs no place beside that of its picture, so that two requests never wait for each other

file control-plane/core/submission/image-upload.ts
tests control-plane/core/http/forms.test.ts: forms
an image as bytes has no bound of its own
  - if (this.#reader.decodedBytes > this.#role.bytesMax) throw imageTooLarge(this.#role);
  = that never end are cut at the bound of a body

file proto/contract/image-header/heif-file.ts
tests proto/contract/test/heif.test.ts: facts of a HEIC
a tile of another codec reaches the decoder of HEIC
  - if (CODED[type] === 'heic' ||
  + if (CODED[type] !== undefined ||
  = refuses a tile of AV1
a HEIC is turned by its container and by Exif
  - const exif = shown.isTurned ? 1 : readExifOrientation(file, items, ids);
  + const exif = readExifOrientation(file, items, ids);
  = irot 1
what is cut off a HEIC is not missed
  - if (type === undefined || !items.extents.has(id)) throw damage('parts of it are missing');
  + if (type === undefined) throw damage('parts of it are missing');
  = a file that is cut anywhere is damaged

file proto/contract/image-header/heif.ts
tests proto/contract/test/image-header.test.ts: HEIC
a still is a sequence where one stands beside it
  - const isStill = coding !== undefined && (format === 'heic' || isOne);
  + const isStill = coding !== undefined && isOne;
  = is a still where a sequence stands beside it

file inference-node/serving/picture/children/heif-decoder.ts
tests inference-node/serving/picture/codecs/heif/fence.test.ts
libheif-js may do what the node may
  - const options = ['--permission', ...permissions,
  + const options = [
  = a module reads no file, starts no program, loads no addon

file inference-node/serving/picture/children/limited-child.ts
tests inference-node/serving/picture/codecs/heif/fence.test.ts
the programs of codecs keep a way to privileges
  - '--no-new-privs', '--bounding-set=-all'
  + '--bounding-set=-all'
  = neither has a capability, nor a way to one

file inference-node/serving/picture/children/find-heif-decoder.ts
tests inference-node/serving/picture/codecs/heif/fence.test.ts
a decoder of HEIC is taken that does not work
  - if (!(tried instanceof Error)) return { decoder: tried, failures };
  + return { decoder: tried as HeifDecoder, failures };
  = what is installed is found in its order, and tried
an old libheif is not named
  - return isAtLeast(version, LIBHEIF_MIN);
  + return isAtLeast(version, '1.0.0');
  = a start and the doctor name what has holes and what is missing

file proto/contract/image-header/heif-items.ts
tests proto/contract/test/heif.test.ts
a file of 2 MB holds up every request by its properties
  - if (!budget.take(Math.floor(count / PROPERTIES_A_STEP))) break;
  = properties are counted, so that a small file holds up nobody who reads its header
an item of a small file is put together to gigabytes
  - const isShort = bytes <= window.sizeBytes;
  + const isShort = bytes >= 0;
  = an item is no longer than its file, however often it names the same bytes

file inference-node/serving/picture/codecs/decode.ts
tests inference-node/serving/picture/codecs/heif/heic.test.ts
a picture is bounded by what is shown of it, not by what is decoded
  - const { stored = size } = opened;
  + const stored = size;
  = what is decoded is bounded, however little of it is shown, and declared

file control-plane/core/dispatch/node-refusals.ts
tests control-plane/core/dispatch/pick-node.test.ts: what no node can do
nobody is told what lets a node read HEIC
  - if (format !== 'heic') return
  + if (format !== null) return
  = is a background that no node reads
`;
