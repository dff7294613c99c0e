// SPDX-License-Identifier: GPL-2.0-only
/*
 * Stands in for the mlx5_core that MLNX_OFED brings, where that is installed, loaded, and unloaded in tests. Drives nothing.
 *
 * Whoever has /dev/lab_mlx5 open keeps it loaded, as another module would that no tool knows of.
 *
 * Copyright (c) 2026 The hpcai.gpu_cluster developers
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>

#include "version.h"

static const struct file_operations operations = { .owner = THIS_MODULE, .open = nonseekable_open };
static struct miscdevice device = { .minor = MISC_DYNAMIC_MINOR, .name = "lab_mlx5", .fops = &operations };

module_misc_device(device);
MODULE_DESCRIPTION("Stands in for MLNX_OFED's driver in tests");
MODULE_LICENSE("GPL");
MODULE_VERSION(LAB_VERSION);
