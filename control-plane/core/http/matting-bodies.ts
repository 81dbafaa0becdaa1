/** Other packages use these to read the bodies of submissions. */
export { meantField } from './meant-fields.ts';
export { bodyFormOf, MATTING_JSON, MattingForm } from './read-matting-body.ts';
