/** The remove.bg interface: one job and one charge for the same request, and nothing refused unsaid. */
import { inFile, type Mutation } from './mutation.ts';

const SUBMIT = 'control-plane/src/services/submission/submit-matting.ts';
const FINGERPRINT = 'control-plane/src/services/submission/submitted-pictures.ts';
const FORM = 'control-plane/src/http/removebg/removebg-form.ts';
const ERRORS = 'control-plane/src/http/removebg/removebg-errors.ts';
const HTTP_TESTS = 'control-plane/test/http/removebg';

const onReplicas = inFile(
  'control-plane/test/compose/removebg.test.ts',
  'the remove.bg interface of two replicas on sqlite',
);
const inAnswers = inFile(
  `${HTTP_TESTS}/removebg-answers.test.ts`,
  'the answer of the remove.bg interface',
);
const inErrors = inFile(
  `${HTTP_TESTS}/removebg-errors.test.ts`,
  'an error of the remove.bg interface',
);

export const REMOVEBG_MUTATIONS: readonly Mutation[] = [
  {
    name: 'a job whose time is over answers for ever',
    file: SUBMIT,
    find: 'if (!isForgotten(job, rememberedMs)) return job;',
    replace: 'if (rememberedMs >= 0) return job;',
    caughtBy: onReplicas(
      'replays for ten minutes, then makes one new job of requests on both replicas',
    ),
  },
  {
    name: 'the derived key forgets what was asked for',
    file: FINGERPRINT,
    find: '${apiKeyId}\\n${fingerprint}\\n`',
    replace: '${apiKeyId}\\n`',
    caughtBy: onReplicas(
      'makes jobs of their own for other parameters, other keys, and other interfaces',
    ),
  },
  {
    name: 'an empty field counts as a source',
    file: FORM,
    find: "if (target.kind !== 'text' || this.#isEmpty) return;",
    replace: "if (target.kind !== 'text') return;",
    caughtBy: inAnswers('is made of what is not empty: clients send every field they know'),
  },
  {
    name: 'a failure that may pass is told as the picture’s fault',
    file: ERRORS,
    find: 'return retryable\n',
    replace: 'return !retryable\n',
    caughtBy: inErrors('of a job: PROCESSING_FAILED, every attempt was lost, is processing_failed'),
  },
  {
    name: 'an image that a node refuses for what was asked is tried on every node',
    file: 'control-plane/src/nodes/attempt-outcome.ts',
    find: "  'INVALID_PARAMETER',\n",
    replace: '',
    caughtBy: onReplicas(
      'takes a region that the node finds empty for the request’s fault, and asks no other',
    ),
  },
];
