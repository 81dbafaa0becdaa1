/**
 * A final job's row and its idempotency key, which the contract remembers for 30 days, stay so
 * long.
 */
export const JOB_RETENTION_DAYS_MIN = 30;
export const JOB_RETENTION_DAYS_MAX = 3650;
