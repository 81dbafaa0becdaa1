/** Other packages use these of the storage: the store of blobs, its kinds, and its checks. */
export {
  BLOB_KINDS,
  BlobNotFoundError,
  type BlobPart,
  type BlobReading,
  type BlobStore,
  type BlobWriter,
  type HashedBlob,
  hashOf,
  requireBlobName,
  type SignedAccess,
  type SignedReading,
  type SignedWrite,
  type SignedWriting,
  unreadable,
  unwritable,
} from './blob-store.ts';
export {
  absoluteStorage,
  checkStorage,
  missingOfStorage,
  openStorage,
  openStorages,
  openStorageToRead,
  StorageConfigError,
  storageDirectory,
  storageKindOf,
} from './open-storage.ts';
export {
  clockProblem,
  requireThat,
  type StorageFinding,
  StorageProblem,
} from './storage-finding.ts';
export type {
  BlobLives,
  StorageKind,
  StorageObserver,
  StorageOpening,
  StorageOperation,
  StorageOutcome,
  StorageRequestEnd,
} from './storage-kind.ts';
