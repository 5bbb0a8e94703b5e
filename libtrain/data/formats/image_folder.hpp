#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <libtrain/data/formats/image_list.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

struct ImageFolderOptions {
  bool skip_unsupported = false;     ///< leave out and count the images that cannot be decoded, rather than to fail
  bool allow_empty_classes = false;  ///< a class without images keeps its number, rather than to fail
};

/// The images of an ImageFolder in the order of torchvision 0.26 (torchvision.datasets.ImageFolder): the folders right
/// below `folder` are the classes, numbered in the order of their names; images lie below them at any depth, in the
/// order of their folders' paths and then of their names. All orders are those of the strings' bytes, which for UTF-8
/// is that of code points. Files that lie in `folder` itself, and files whose names do not end like an image's, are
/// ignored. Endings in any case: .jpg, .jpeg and .png; and .ppm, .bmp, .pgm, .tif, .tiff and .webp, which torchvision
/// reads and libtrain does not: they are an error unless options.skip_unsupported.
///
/// As there, a class without images is an error, and a link that leads nowhere is an image where its name ends like
/// one: reading it fails. Otherwise than there, such a link in `folder` itself, which may stand for a class, is an
/// error, and a file system's own folder there, "lost+found", is no class. Object stores tell of an empty folder only
/// where something has marked it.
///
/// `folder` lies below the storage's root, "" for the root itself. Lists the storage once and opens nothing. Throws as
/// Storage::list; EnvironmentError as well for a folder without classes, a class without images, a link that
/// leads nowhere in `folder` itself, or the first image that cannot be decoded. Any thread may call it.
ImageList list_image_folder(const Storage& storage, const std::string& folder, const ImageFolderOptions& options = {});

namespace detail {

/// "Image folder '<name>'", for messages.
std::string image_folder_name(const Storage& storage, const std::string& folder);

/// The path of `folder` with a slash behind it, "" for the root: what the paths of all files in it begin with.
std::string image_folder_prefix(const std::string& folder);

/// list_image_folder() of `files`, whose paths begin with `prefix`; no classes at all are no error.
ImageList order_images(const std::vector<FileInfo>& files, std::string_view prefix, const std::string& subject,
                       const ImageFolderOptions& options);

}  // namespace detail

}  // namespace libtrain::data
