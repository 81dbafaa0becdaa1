/** What keeps a picture from being made, and charged, without the finishing that was asked for. */
import { inFile, type Mutation } from './mutation.ts';

const inRows = inFile(
  'control-plane/test/store/jobs/job-finishing.test.ts',
  'jobs with finishing on sqlite',
);
const inPolicy = inFile('control-plane/test/domain/dispatch/dispatch-policy.test.ts');
const inFields = inFile('control-plane/test/services/submission/submit-fields.test.ts');
const RETENTION = 'control-plane/src/store/jobs/job-retention.ts';

export const FINISHING_MUTATIONS: readonly Mutation[] = [
  {
    name: 'a job with finishing stands where control planes from before see it',
    file: 'control-plane/src/store/jobs/queue-range.ts',
    find: "return range === 'finishing' ? -FINISHING_SHIFT_MS : 0;",
    replace: 'return 0;',
    caughtBy: inRows('have lanes of their own and stand among the others in the queue'),
  },
  {
    name: 'a background that a job names is swept away',
    file: RETENTION,
    find: 'for (const name of await readBack(database, db => backgroundsIn(db, some))) found.add(name);',
    replace: '',
    caughtBy: inRows('name their background until they end, either way'),
  },
  {
    name: 'a job with finishing goes to a node that does not finish',
    file: 'control-plane/src/domain/dispatch/dispatch-policy.ts',
    find: 'if (needs.finishing && !node.finishing) return false;',
    replace: '',
    caughtBy: inPolicy('keeps what is to be finished off nodes that do not finish'),
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
];
