/**
 * fast-check with the same cases in every run, so that no run fails by what another never saw.
 * MATTING_TEST_SEED takes others; what fails says with which.
 */
import fc from 'fast-check';

const seed = Number(process.env.MATTING_TEST_SEED ?? 1);
fc.configureGlobal({ seed });

export { fc };
