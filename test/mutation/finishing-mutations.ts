/** These keep a picture from being made, and charged, without the finishing of its request. */
import { mutationsOf } from './mutation.ts';

export const FINISHING_MUTATIONS = mutationsOf`
file control-plane/core/jobs/job-store.ts
tests control-plane/core/jobs/job-store.test.ts: jobs with finishing on sqlite
a background that a job names is swept away
  - for (const read of [inputsIn, resultsIn, backgroundsIn]) {
  + for (const read of [inputsIn, resultsIn]) {
  = name their background until they end, either way
tests control-plane/core/jobs/job-store.test.ts: jobs on sqlite › retention
a thumbnail stays behind where its result goes
  - thumbnailBytes === null ? [blob] : [blob, thumbnailBlob(blob)];
  + [blob];
  = a thumbnail is named and goes with its result, whichever way that goes
a backup names results that it did not ask for
  - new Set(names.filter(name => found.has(name)));
  + found;
  = a thumbnail is named and goes with its result, whichever way that goes

file control-plane/core/attempts/claimed-job.ts
tests control-plane/core/attempts/thumbnails.test.ts
an attempt that was overtaken leaves its thumbnail behind
  - await this.#removeBlob(thumbnailBlob(blob));
  = a thumbnail › goes with the result of an attempt that was overtaken
a job has a thumbnail that the storage did not take
  - else if (await stored) return bytes.length;
  + else return bytes.length;
  = a thumbnail › that the storage does not take is none, and the job succeeds and is charged

file control-plane/core/nodes/matte-client-call.ts
tests control-plane/core/attempts/thumbnails.test.ts
a node stores a thumbnail of any size
  - return length > 0 && length <= THUMBNAIL_BYTES_MAX;
  + return length > 0;
  = a thumbnail › is none where the node sends too many bytes of it, and the job succeeds
tests control-plane/core/attempts/attempts.test.ts: an answer without what was asked for
an answer without the finishing that was asked for is taken
  - if (isSame) return;
  + return;
  = is nothing where a step is missing of it

file control-plane/core/submission/matting-request.ts
tests control-plane/core/submission/requests.test.ts: fields
the URL of a background is not judged
  - requireBackgroundUrl(url, policy);
  = a background by its URL is judged as image_url is, in its own name

file control-plane/core/fetching/fetch-image.ts
tests control-plane/core/submission/pictures.test.ts: a background
a background may have the bounds of an image
  - kind === 'image' ? INPUT_IMAGE : BACKGROUND_IMAGE
  + kind === 'image' ? INPUT_IMAGE : { ...BACKGROUND_IMAGE, pixelsMax: 1e8 }
  = has bounds of its own, and says in every error that it is the background

file proto/contract/finishing/frame.ts
tests proto/contract/test/finishing-fields.test.ts: a frame larger than the picture and than 50 megapixels
a frame of a tiny image may have 100 megapixels
  - if (pixels <= framePixelsMax(input)) return undefined;
  + if (pixels <= 1e8) return undefined;
  = is refused by the name of its field: margins in px

file control-plane/core/submission/pictures.ts
tests control-plane/removebg/removebg.test.ts: an error of the remove.bg interface
a submission is not asked for the size of its frame
  - if (finishing !== undefined && size !== undefined) {
  + if (finishing !== undefined && size === null) {
  = invalid_crop_margin: {"crop":"true","crop_margin":"500px","scale":"10%"}

file inference-node/serving/pipeline.ts
tests inference-node/serving/grpc/finishing.test.ts: a header with finishing
a model runs for a frame that the node does not make
  - requireMakeable(order, decoded, this.#pictures.capabilities, { turned: false });
  = that only the picture shows to be too large ends before a model runs

file inference-node/serving/picture/codecs/thumbnail.ts
tests inference-node/serving/picture/codecs/thumbnail.test.ts
a thumbnail has any number of bytes
  - if (webp.length <= THUMBNAIL_BYTES_MAX) return webp;
  + return webp;
  = a thumbnail › has no more bytes than allowed, of noise too, or there is none

file inference-node/serving/picture/worker/finish.ts
tests inference-node/serving/picture/finishing/finish.test.ts: a frame that the subject makes larger than it may be
a node makes the frame that the subject turns out to ask for, however large
  - requireFrame(finishing, picture, layout.frame.width * layout.frame.height);
  = is refused by the name of its field, and one that is bounded is made

file control-plane/core/attempts/claimed-job.ts
tests control-plane/core/attempts/attempts.test.ts: where no subject is to be seen
a job that is to fail without a subject fails where the node does not say
  - result.sight?.subject === null
  + !result.sight?.subject
  = asked to fail, not said: a result

file control-plane/core/dispatch/job-needs.ts
tests test/contract/hidden-frames.test.ts
an image is placed without the memory of its frame
  - framePixels: finishing.frame.most,
  + framePixels: 0,
  = jobs whose memory is hidden in margins wait, and others do not
an image is placed without the memory of its background
  - background: finishing.background ?? undefined,
  + background: undefined,
  = jobs whose memory is hidden in a background wait, and others do not

file control-plane/core/jobs/leases.ts
tests control-plane/core/jobs/job-store.test.ts: jobs with finishing on sqlite
a downloaded image counts in the queue without its frame
  - frame_pixels: queuedFramePixels(finishing, input)
  + frame_pixels: null
  = count as the rule of frames has it, before their image is there and after

file control-plane/core/nodes/node-view.ts
tests control-plane/core/dispatch/pick-node.test.ts: a node that refused
a node that has no memory for one image gets no other
  - if (full === 'for-all') this.#fullUntilReport = true;
  + if (full !== undefined) this.#fullUntilReport = true;
  = for want of memory gets nothing as large until it reports, and what is smaller at once

file control-plane/core/dispatch/advertised-nodes.ts
tests control-plane/core/dispatch/pick-node.test.ts: the nodes whose word counts
a replica that just started refuses what it has seen no node do
  - if (now() - this.#startedAtMs <= graceMs) return undefined;
  = are not known within the first grace
a node that restarts takes its word with it
  - if (nowMs - atMs > graceMs) seen.delete(models);
  + if (nowMs > atMs) seen.delete(models);
  = are those that were there within the grace, and no others

file control-plane/core/submission/acceptance-gate.ts
tests control-plane/core/submission/submission.test.ts: what no node can do
what no node can do is not refused at submission
  - if (refusal !== undefined) throw refusal;
  = an output format, a picture and a size that no node takes are refused by their own codes
`;
