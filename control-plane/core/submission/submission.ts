/** Other packages use these of a submission: its fields, its uploads, and what becomes of it. */
export type { ImageUpload, KnownImage } from './image-upload.ts';
export type { RequestUploads } from './image-uploads.ts';
export { requireBackgroundUrl, requireImageUrl } from './image-url.ts';
export {
  MATTING_FIELDS,
  type MattingFields,
  type MattingRequest,
  requireMattingRequest,
  type TextField,
} from './matting-request.ts';
export {
  AllowanceError,
  type KeylessSubmission,
  type Submitted,
} from './submit-matting.ts';
