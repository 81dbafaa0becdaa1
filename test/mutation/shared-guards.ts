import { guardsOf } from './guard.ts';

export const SHARED_GUARDS = guardsOf`
client/src/client.ts by test/client/client-faults.test.ts
#carryOut | a failure that passes is submitted again, under the same key
  - this.#post(path, submission, idempotencyKey, budget)
  + this.#post(PATHS.matting, submission, newKey(), budget)
client/src/command/find-pictures.ts by test/client/remove.test.ts
requireApart | if (source ! | results that would take the same place are refused before any is paid
client/src/command/journal.ts by test/client/remove.test.ts
bytesOfDone | the same picture under two names is paid once, and its line says all
  - done?.key === key ? done.bytes : undefined
  + done?.bytes
client/src/command/picture-key.ts by test/client/remove.test.ts
keyOf | fieldsText] | the same picture under two names is paid once, and its line says all
client/src/command/picture-run.ts by test/client/remove.test.ts
makeResult | idempotencyKey | the same picture under two names is paid once, and its line says all
client/src/command/remove-urls.ts by test/client/remove-urls.test.ts
#plan | === (await sizeOf | a list that changes is paid for its new addresses alone, each of them once
#plan | + 1 | an address that failed for the moment is asked again by the same command
#carryOut | !== batch.key | a list that an older command began goes on, and nothing is paid twice
client/src/command/url-batches.ts by test/client/remove-urls.test.ts
earlierUrls | !== key | a list of 2,500 addresses is three batches, whose items are found again in any order
client/src/command/stops-the-run.ts by test/client/newer-service.test.ts
stopsTheRun | includes(status | 400 IMAGE_TOO_SMALL fails its picture, and the next ones are sent
stopsTheRun | return STATUSES_OF_ALL | 402 CREDITS_FROZEN stops the folder: no picture fares better
client/src/retry-budget.ts by test/client/client-faults.test.ts
beforeRetry | ?? backoff | a retry waits as long as Retry-After says
client/src/result-file.ts by test/client/client-faults.test.ts
#requireWhole | !== undefined | an answer that ends early is not taken for whole
program/followed-files.ts by program/test/followed-files.test.ts
#readAgain | !isSettled | a value that changes again while it is read is in the middle of being written
program/held-bytes.ts by program/test/held-bytes.test.ts
begin | key: | an account keeps half of all there is, and leaves room for whoever comes
begin | weight | bytes of all requests are counted together
program/log.ts by program/test/log.test.ts: failures
keeps | === undefined | the first of each message and cause is written, the others are counted each minute
takeLeftOut | >= REPORT | one that comes just before the minute ends is not told in full again
program/ports/bounded-messages.ts by inference-node/serving/grpc/strangers.test.ts
boundMessages | if (headers.bytes > | half a header › as large as it may be is taken of known callers, from direct ones 1 MiB at once
boundMessages | > bytesMax | half a message › over the bound is refused with a token too, but for the bytes of Matte
program/ports/chunked-bodies.ts by control-plane/core/http/uploads-over-sockets.test.ts
gatherChunks | over = !pieces | a body in tiny chunks › ends the connection of a stranger, however it would be answered
program/ports/chunked-bodies.ts by program/ports/test/chunked-bodies.test.ts
gatherChunks | if (over) return | more chunks of 1 than bytes are worth end the connection, once
gatherChunks | < request | a body that nobody reads yet is not gathered without end
program/ports/grpc-guard.ts by control-plane/core/test/registry-server.test.ts
#opened | if (this.#strangers > this | a connection to the registry › without the token keeps no node out
program/ports/grpc-guard.ts by inference-node/serving/grpc/strangers.test.ts
watch | initialWindowSize | a call with a wrong token › that sends its file at once hears why, in messages of a megabyte
program/ports/keyless.ts by control-plane/rembg/redirected-requests.test.ts
isSentByService | test | a download of this service is no program nearby, where any address is open
program/ports/keyless.ts by control-plane/rembg/rembg.test.ts
isOwnHost | isIP | a request without a key must come from nearby, without a proxy and not from a browser
hostIn | a request without a key must come from nearby, without a proxy and not from a browser
program/ports/listening.ts by program/ports/test/listening.test.ts
connectionsWithin | Math.min | connections take their share of it, and no more than are wanted
program/ports/port-room.ts by program/ports/test/port-room.test.ts
awaitBody | > max | bodies on their way › of the network with most of them go first, its oldest before the others
#least | get( | bodies on their way › that are whole and unread are never the ones to go
#makeRoom | ?? this | a port with few places left › asks accounts last, and of them the one with most
program/ports/reader-pace.ts by control-plane/core/http/slow-callers.test.ts: readers of result links
tooMany | > unreadBytesMax | > one.bytes | that hold too much memory are cut off, the slowest of the largest account first
program/semaphore.ts by program/test/semaphore.test.ts: keys of a semaphore
take | if (own | whose callers all wait leave others room to wait
#hasShare | heldBy | that hold their share keep no other out
program/tls/tls-files.ts by program/tls/test/tls-files.test.ts
#readAgain | !isExpired | TLS files that change › are not used where the new certificate has expired and the old one has not
proto/contract/curl-sample.ts by control-plane/portal/documents/samples.test.ts: curl
curlSample | ...formStrings | fails, says why and leaves no file where no picture came
curlSample | keyPrefix | writes the picture, and one picture is paid once
proto/contract/errors.ts by proto/contract/test/errors.test.ts
ERROR_CATALOGUE | 410, | every public code has the status, the retry rule and the subject that were promised
proto/contract/finishing/fields.ts by proto/contract/test/finishing-fields.test.ts
frameOf | <= FRAME | fields › {"aspect_ratio":"1:1","output_width":"8000"} with {} is INVALID_PARAMETER
proto/contract/finishing/frame.ts by proto/contract/test/finishing-fields.test.ts
frameRefusal | if ( | a frame larger than the picture and than 50 megapixels › is refused by the name of its field: margins in px
proto/contract/grpc-status.ts by proto/contract/test/wire.test.ts
fromServiceError | 'false' | fromServiceError › takes a code of the future that blames the request for a fault of the image
proto/contract/hints.ts by proto/contract/test/hints-wire.test.ts
requireInside | x <= right | refuses shapes outside of the picture or the box
requireShapes | shapes > | points > | refuses more shapes or points than a request may have
proto/contract/image-header/heif-file.ts by proto/contract/test/heif.test.ts: facts of a HEIC
requireParts | if (CODED | refuses a tile of AV1
readHeif | ? 1 : | irot 1
requireParts | || ! | a file that is cut anywhere is damaged
proto/contract/image-header/heif-items.ts by proto/contract/test/heif.test.ts
readProperties | if (! | properties are counted, so that a small file holds up nobody who reads its header
readExtents | <= window | an item is no longer than its file, however often it names the same bytes
proto/contract/image-header/heif.ts by proto/contract/test/image-header.test.ts
readHeifHeader | === 'heic' || | HEIC › is a still where a sequence stands beside it
`;
