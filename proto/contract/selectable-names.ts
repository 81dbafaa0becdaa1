export const SELECTABLE_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
export const SELECTABLE_NAME_FORM =
  '1 to 64 letters, digits, dots, underscores and hyphens, the first a letter or a digit';
/** Of one node. */
export const SELECTABLES_MAX = 256;
