/** Settings of earlier releases that are no more, and what an operator does instead. A start refuses them. */
export const LEFT_VARIABLES: Readonly<Record<string, string>> = {
  MATTING_DIRECT_STORAGE:
    'files of nodes go through the control planes (docs/scaling.md says how many a fleet needs)',
  MATTING_DIRECT_STORAGE_ENDPOINTS:
    'nodes no longer read from a bucket or write there, and need no way to it',
};
