/** Other packages use these to read the bodies of submissions. */
export { NOT_IN_A_CORRECTION } from '../submission/corrections.ts';
export { namedLike } from './meant-fields.ts';
export { bodyFormOf, MATTING_JSON, MattingForm } from './read-matting-body.ts';
