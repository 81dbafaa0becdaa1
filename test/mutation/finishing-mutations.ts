/** What keeps a picture from being made, and charged, without the finishing that was asked for. */
import { inFile, type Mutation } from './mutation.ts';

const inRows = inFile(
  'control-plane/test/store/jobs/job-finishing.test.ts',
  'jobs with finishing on sqlite',
);
const inFields = inFile('control-plane/test/services/submission/submit-fields.test.ts');
const inFrames = inFile(
  'proto/contract/test/frame.test.ts',
  'a frame larger than the picture and than 50 megapixels',
);
const inHeader = inFile('inference-node/test/grpc/finishing.test.ts', 'a header with finishing');
const inScene = inFile(
  'test/contract/hidden-frames.test.ts',
  'beside an image in a node of 16 megapixels',
);
const inAdverts = inFile(
  'control-plane/test/domain/dispatch/refusal.test.ts',
  'the nodes whose word counts',
);
const RETENTION = 'control-plane/src/store/jobs/job-retention.ts';

export const FINISHING_MUTATIONS: readonly Mutation[] = [
  {
    name: 'a background that a job names is swept away',
    file: RETENTION,
    find: 'for (const name of await readBack(database, db => backgroundsIn(db, some))) found.add(name);',
    replace: '',
    caughtBy: inRows('name their background until they end, either way'),
  },
  {
    name: 'an answer without the finishing that was asked for is taken',
    file: 'control-plane/src/nodes/matte-header.ts',
    find: 'if (isSame) return;',
    replace: 'return;',
    caughtBy: inFile(
      'control-plane/test/services/dispatch/finishing.test.ts',
      'an answer without what was asked for',
    )('is nothing where a step is missing of it'),
  },
  {
    name: 'the URL of a background is not judged',
    file: 'control-plane/src/services/submission/submit-fields.ts',
    find: 'requireBackgroundUrl(url, policy);',
    replace: '',
    caughtBy: inFields('a background by its URL is judged as image_url is, in its own name'),
  },
  {
    name: 'a background may have the bounds of an image',
    file: 'control-plane/src/sources/fetch-image.ts',
    find: "kind === 'image' ? INPUT_IMAGE : BACKGROUND_IMAGE",
    replace: "kind === 'image' ? INPUT_IMAGE : { ...BACKGROUND_IMAGE, pixelsMax: 1e8 }",
    caughtBy: inFile(
      'control-plane/test/sources/fetch-image.test.ts',
      'a background',
    )('has bounds of its own, and says in every error that it is the background'),
  },
  {
    name: 'a frame of a tiny image may have 100 megapixels',
    file: 'proto/contract/finishing/frame.ts',
    find: 'if (pixels <= framePixelsMax(input)) return undefined;',
    replace: 'if (pixels <= 1e8) return undefined;',
    caughtBy: inFrames('is refused by the name of its field: margins in px'),
  },
  {
    name: 'a submission is not asked for the size of its frame',
    file: 'control-plane/src/services/submission/submitted-pictures.ts',
    find: 'if (finishing !== undefined && size !== undefined) {',
    replace: 'if (finishing !== undefined && size === null) {',
    caughtBy: inFile(
      'control-plane/test/http/removebg/removebg-errors.test.ts',
      'an error of the remove.bg interface',
    )('invalid_crop_margin: {"crop":"true","crop_margin":"500px","scale":"10%"}'),
  },
  {
    name: 'a model runs for a frame that the node does not make',
    file: 'inference-node/src/pipeline.ts',
    find: 'requireMakeable(order, decoded, this.#pictures.capabilities, { turned: false });',
    replace: '',
    caughtBy: inHeader('that only the picture shows to be too large ends before a model runs'),
  },
  {
    name: 'a node makes the frame that the subject turns out to ask for, however large',
    file: 'inference-node/src/picture/worker/finish.ts',
    find: 'requireFrame(finishing, picture, layout.frame.width * layout.frame.height);',
    replace: '',
    caughtBy: inFile(
      'inference-node/test/picture/finishing/finish.test.ts',
      'a frame that the subject makes larger than it may be',
    )('is refused by the name of its field, and one that is bounded is made'),
  },
  {
    name: 'an image is placed without the memory of its frame',
    file: 'control-plane/src/domain/dispatch/job-needs.ts',
    find: 'framePixels: finishing.frame.most,',
    replace: 'framePixels: 0,',
    caughtBy: inScene('jobs whose memory is hidden in margins wait, and others do not'),
  },
  {
    name: 'an image is placed without the memory of its background',
    file: 'control-plane/src/domain/dispatch/job-needs.ts',
    find: 'background: finishing.background ?? undefined,',
    replace: 'background: undefined,',
    caughtBy: inScene('jobs whose memory is hidden in a background wait, and others do not'),
  },
  {
    name: 'a downloaded image counts in the queue without its frame',
    file: 'control-plane/src/store/jobs/job-lease.ts',
    find: 'frame_pixels: queuedFramePixels(finishing, input)',
    replace: 'frame_pixels: null',
    caughtBy: inRows('count as the rule of frames has it, before their image is there and after'),
  },
  {
    name: 'a node that has no memory for one image gets no other',
    file: 'control-plane/src/domain/dispatch/node-view.ts',
    find: "if (full === 'for-all') this.#fullUntilReport = true;",
    replace: 'if (full !== undefined) this.#fullUntilReport = true;',
    caughtBy: inFile(
      'control-plane/test/domain/dispatch/node-view.test.ts',
      'a node that refused',
    )('for want of memory gets nothing as large until it reports, and what is smaller at once'),
  },
  {
    name: 'a replica that just started refuses what it has seen no node do',
    file: 'control-plane/src/domain/dispatch/refusal.ts',
    find: 'if (now() - this.#startedAtMs <= graceMs) return undefined;',
    replace: '',
    caughtBy: inAdverts('are not known within the first grace'),
  },
  {
    name: 'a node that restarts takes its word with it',
    file: 'control-plane/src/domain/dispatch/refusal.ts',
    find: 'if (nowMs - atMs > graceMs) this.#seen.delete(bootId);',
    replace: 'if (nowMs > atMs) this.#seen.delete(bootId);',
    caughtBy: inAdverts('are those that were there within the grace, and no others'),
  },
  {
    name: 'what no node can do is not refused at submission',
    file: 'control-plane/src/services/submission/acceptance.ts',
    find: 'if (refusal !== undefined) throw refusal;',
    replace: '',
    caughtBy: inFile('control-plane/test/http/routes/incapable.test.ts')(
      'an output format, a picture and a size that no node takes are refused by their own codes',
    ),
  },
];
